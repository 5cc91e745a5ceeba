//! What every measurement has: where it runs, and where its results go.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::machine::{self, Pin};
use crate::model::{Machine, Placement};
use crate::run_file::{Results, RunFile, VERSION};

/// Arguments of every measurement.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// The CPU for clients, daemons and belay: its number, `last`, or `none` to let the scheduler
    /// place them
    #[arg(long, default_value = "last", value_name = "CPU")]
    pin: Pin,
    /// Where to write the results file
    #[arg(long, default_value = "target/bench", value_name = "DIR")]
    out: PathBuf,
}

/// A run that has begun.
pub struct Begun {
    started: String,
    machine: Machine,
    placement: Placement,
    path: PathBuf,
}

impl Begun {
    /// Collects what is to be told of a run, and places this process; `name` is that of the results
    /// file.
    pub fn new(common: &Common, name: &str) -> Result<Self> {
        // Before pinning, which changes how many CPUs this process sees.
        let machine = machine::describe();
        let placement = common.pin.apply()?;
        println!(
            "{} CPUs, Linux {}; {placement}; {} build",
            machine.cpus, machine.kernel, machine.profile
        );
        let suffix = if placement == Placement::Free { "-unpinned" } else { "" };
        let path = common.out.join(format!("{name}{suffix}.json"));
        Ok(Self { started: machine::now(), machine, placement, path })
    }

    /// Where the results are written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the results, also half of them.
    pub fn write(&self, results: Results) -> Result<()> {
        self.file(results).write(&self.path)
    }

    /// The same, and the page that they have beside them; gives the page.
    pub fn write_with_page(
        &self,
        results: Results,
        page_of: fn(&RunFile) -> Option<String>,
    ) -> Result<String> {
        let file = self.file(results);
        file.write(&self.path)?;
        let text = page_of(&file).context("these results have no page of their own")?;
        let page = self.path.with_extension("md");
        fs::write(&page, &text).with_context(|| format!("write {}", page.display()))?;
        Ok(text)
    }

    /// The results, as they are written.
    fn file(&self, results: Results) -> RunFile {
        RunFile {
            version: VERSION,
            command: command_line(std::env::args()),
            started: self.started.clone(),
            finished: machine::now(),
            machine: self.machine.clone(),
            placement: self.placement,
            results,
        }
    }
}

/// Where, how and when something was measured, for the foot of a table.
pub fn describe(
    machine: &Machine,
    placement: Placement,
    back_ends: &str,
    started: &str,
    command: &str,
) -> String {
    let Machine { kernel, cpu_model, cpus, memory_bytes, profile, .. } = machine;
    format!(
        "{cpus} CPUs ({cpu_model}), {:.0} GiB, Linux {kernel}, {back_ends}; {placement}; {profile} build; {started}; `{command}`",
        *memory_bytes as f64 / f64::from(1 << 30),
    )
}

/// The command line as a reader can repeat it: the program's name without its directory, words
/// quoted where needed.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+".contains(c);
    let line: Vec<String> = words
        .enumerate()
        .map(|(index, word)| {
            let word = match Path::new(&word).file_name() {
                Some(name) if index == 0 => name.to_string_lossy().into_owned(),
                _ => word,
            };
            let quote = word.is_empty() || !word.chars().all(plain);
            if quote { format!("'{}'", word.replace('\'', r"'\''")) } else { word }
        })
        .collect();
    line.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_repeated() {
        let words = ["/a b/belay-bench", "cost", "--out", "my dir"].map(str::to_owned);
        assert_eq!(command_line(words.into_iter()), "belay-bench cost --out 'my dir'");
    }
}
