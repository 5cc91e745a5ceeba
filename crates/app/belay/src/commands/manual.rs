//! Shell completions and manual pages, made from the command line's own definition.

use crate::cli::Cli;
use crate::messages::Out;
use anyhow::{Context, Result, bail};
use belay_supervisor::text::{command_line, count};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Prints completions for `shell`.
pub fn completions(shell: clap_complete::Shell) -> Result<i32> {
    // What it cannot write it panics about.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut for_people(), "belay", &mut text);
    Out.write_all(&text)?;
    Ok(0)
}

/// belay without the commands that it has for itself.
fn for_people() -> Command {
    let whole = Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new("belay")
        .args(whole.get_arguments().cloned())
        .subcommands(shown.cloned())
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
}

/// Prints the page of `words`, which are a command or a directory as `dir` is, or belay's own; or
/// writes all pages into `dir`.
pub fn run(words: &[PathBuf], dir: Option<&Path>) -> Result<i32> {
    let all = commands();
    let name = words.iter().map(|word| word.as_os_str()).collect::<Vec<_>>().join("-".as_ref());
    let own = all.iter().find(|(page, _)| match words {
        [] => page == "belay",
        _ => page.strip_prefix("belay-").is_some_and(|page| *name == *page),
    });
    match (dir, words, own) {
        (Some(dir), ..) => write_all(&all, dir)?,
        (None, _, Some((_, command))) => Out.write_all(&page(command)?)?,
        // Packages have been made by this.
        (None, [dir], None) if dir.is_dir() || dir.components().count() > 1 => {
            write_all(&all, dir)?;
        }
        (None, words, None) => {
            let quoted = command_line(words.iter().map(|word| word.as_os_str()));
            let hint = match words {
                [_] => format!(
                    "; to write all pages into a directory of that name: `belay man --dir {quoted}`"
                ),
                _ => String::new(),
            };
            bail!("belay has no command {quoted}: `belay help` lists them{hint}");
        }
    }
    Ok(0)
}

/// belay and its commands, each with the name of its page.
fn commands() -> Vec<(String, Command)> {
    let mut belay = Cli::command().disable_help_subcommand(true);
    belay.build();
    let mut all = Vec::new();
    add(&belay, &mut all);
    all
}

/// A command, and those below it.
fn add(command: &Command, all: &mut Vec<(String, Command)>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    all.push((name, command.clone()));
    let below = command.get_subcommands();
    for one in below.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        add(one, all);
    }
}

fn write_all(all: &[(String, Command)], dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (name, command) in all {
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page(command)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    writeln!(
        Out,
        "{}: {} written (belay.1 and one for each command)",
        dir.display(),
        count(all.len() as u64, "manual page")
    )?;
    Ok(())
}

/// What clap_mangen makes of it; but it forgets what comes before the daemon's command.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    for argument in command.get_positionals().filter(|argument| argument.is_last_set()) {
        let name = argument.get_value_names().and_then(|names| names.first());
        let name = name.map_or(argument.get_id().as_str(), |name| name.as_str());
        let (open, close) = if argument.is_required_set() { ("", "") } else { ("[", "]") };
        for (before, after) in [("<", ">"), ("[", "]")] {
            text = text.replacen(
                &format!(" {before}\\fI{name}\\fR{after} \n"),
                &format!(" {open}\\fB\\-\\-\\fR \\fI{name}\\fR...{close}\n"),
                1,
            );
        }
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use snapbox::{assert_data_eq, file};

    #[test]
    fn the_help_of_all_commands_is_as_it_was_read() {
        let mut all = String::new();
        for (name, command) in commands() {
            let command_line = command.get_bin_name().unwrap_or(&name).to_owned();
            let help = command.term_width(100).render_long_help();
            all += &format!("$ {command_line} --help\n{help}\n");
        }
        assert_data_eq!(all, file!["../../tests/snapshots/help.txt"].raw());
    }

    #[test]
    fn the_daemons_command_comes_behind_the_dashes() {
        let synopsis = |name: &str| {
            let all = commands();
            let (_, command) = all.iter().find(|(page, _)| page == name).expect(name);
            let page = String::from_utf8(page(command).expect("a page")).expect("UTF-8");
            let line = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1);
            line.expect("a synopsis").replace("\\fR", "").replace("\\fB", "").replace("\\fI", "")
        };
        for name in ["belay-run", "belay-qualify"] {
            assert!(synopsis(name).ends_with(r" \-\- CMD..."), "{}", synopsis(name));
        }
        assert!(
            synopsis("belay-doctor").ends_with(r" [\-\- CMD...]"),
            "{}",
            synopsis("belay-doctor")
        );
        assert!(synopsis("belay-replay").ends_with("[MOUNT] "), "{}", synopsis("belay-replay"));
    }
}
