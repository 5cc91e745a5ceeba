//! Command lines that nobody meant as they are: what to write instead, in full.

use crate::cli::Cli;
use crate::preflight::binary;
use belay_supervisor::text::command_line;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Parser};
use std::ffi::{OsStr, OsString};

/// What to say of a command line that clap has refused; nothing if clap itself says it best.
pub fn remedy(words: &[OsString], refused: &clap::Error) -> Option<String> {
    match refused.kind() {
        ErrorKind::UnknownArgument => dashes(words, &context(refused, ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => {
            daemon(words, &context(refused, ContextKind::InvalidSubcommand)?)
        }
        _ => None,
    }
}

fn context(refused: &clap::Error, kind: ContextKind) -> Option<String> {
    match refused.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// The daemon's command without `--` before it.
fn dashes(words: &[OsString], refused: &str) -> Option<String> {
    let at = words.iter().position(|word| word.to_string_lossy() == refused)?;
    let (before, rest) = words.split_at_checked(at)?;
    let name = before.get(1)?.to_str()?;
    let takes_daemon = |command: &Command| command.get_positionals().any(|arg| arg.is_last_set());
    if refused.starts_with('-')
        || !Cli::command().find_subcommand(name).is_some_and(takes_daemon)
        || before.iter().any(|word| word == "--")
    {
        return None;
    }
    let dashes = OsString::from("--");
    let corrected: Vec<&OsStr> =
        before.iter().chain([&dashes]).chain(rest).map(OsString::as_os_str).collect();
    Cli::try_parse_from(&corrected).ok()?;
    Some(format!("write `--` before the daemon's command: `{}`", shown(&corrected)))
}

/// A daemon's name in the place of a command.
fn daemon(words: &[OsString], refused: &str) -> Option<String> {
    let rest = words.get(1..).filter(|rest| rest.first().is_some_and(|word| word == refused))?;
    binary::find(OsStr::new(refused)).ok()?;
    let belay = ["belay", "run", "--"].map(OsStr::new);
    let all: Vec<&OsStr> = belay.into_iter().chain(rest.iter().map(OsString::as_os_str)).collect();
    Some(format!("belay has no command `{refused}`; to hold that daemon: `{}`", shown(&all)))
}

/// As it is to be typed: belay by its name, wherever it was called from.
fn shown(words: &[&OsStr]) -> String {
    let belay = OsStr::new("belay");
    command_line(std::iter::once(belay).chain(words.iter().skip(1).copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        remedy(&words, &Cli::try_parse_from(&words).expect_err("it is refused"))
    }

    #[test]
    fn the_daemons_command_is_written_out_with_the_dashes() {
        for (line, corrected) in [
            ("belay run bindfs -f /a /b", "belay run -- bindfs -f /a /b"),
            (
                "/opt/belay run --hang-timeout 30s -v sshfs h: /mnt",
                "belay run --hang-timeout 30s -v -- sshfs h: /mnt",
            ),
            ("belay run bindfs -- /a /b", "belay run -- bindfs -- /a /b"),
            ("belay doctor bindfs /a /b", "belay doctor -- bindfs /a /b"),
            ("belay doctor --json bindfs", "belay doctor --json -- bindfs"),
            ("belay qualify --quick bindfs /a /b", "belay qualify --quick -- bindfs /a /b"),
        ] {
            let said = said(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(said, format!("write `--` before the daemon's command: `{corrected}`"));
        }
        for line in
            ["belay run --nope bindfs", "belay stop /a /b", "belay status /a /b", "belay run -o x"]
        {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn a_daemon_in_the_place_of_a_command_is_known() {
        assert!(
            said("belay cat -f /a").is_some_and(|text| text.contains("`belay run -- cat -f /a`"))
        );
        assert_eq!(said("belay no-such-command"), None);
    }
}
