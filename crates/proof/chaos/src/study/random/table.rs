//! What the study of random crashes found, for programs and for people.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use belay_fixtures::Kind;
use belay_fixtures::table::{numbers, tabulate, words};
use belay_workloads::{Name, Scale, Workload};
use serde::Serialize;

use super::super::results;
use crate::report::Blackout;

/// Crashes that the paper injected for each file system and workload, all of which were survived.
const PAPER: u64 = 100;

/// One run under fire.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub seed: u64,
    pub crashes: u64,
    pub seconds: f64,
    /// What did not come out as it should; empty if the crashes were survived. Not more than the
    /// first few.
    pub wrong: Vec<String>,
    /// How many such things there were.
    pub differences: usize,
    /// The command that repeats the run.
    pub replay: Option<String>,
    /// What belay and the daemon said last, if something was wrong.
    pub last_words: String,
    pub counted_by_belay: Option<f64>,
    /// Requests that were answered with an error because of a crash.
    pub requests_failed: Option<f64>,
    pub blackout: Blackout,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} crashes in {:.1} s (seed {})", self.crashes, self.seconds, self.seed)?;
        if self.wrong.is_empty() {
            return write!(f, ", right");
        }
        write!(f, "\n  DIVERGENCE: {} things are wrong", self.differences)?;
        for line in &self.wrong {
            write!(f, "\n    {line}")?;
        }
        if let Some(replay) = &self.replay {
            write!(f, "\n  replay: {replay}")?;
        }
        Ok(())
    }
}

/// One fixture with one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub fixture: Kind,
    pub workload: Name,
    pub parameters: String,
    /// Of the undisturbed run on the bare mount.
    pub bare_seconds: f64,
    /// The bare daemon, killed once.
    pub control: Option<Run>,
    pub runs: Vec<Run>,
}

impl Cell {
    pub fn new(fixture: Kind, workload: &Workload, bare: Duration) -> Self {
        Self {
            fixture,
            workload: workload.name(),
            parameters: workload.describe(),
            bare_seconds: bare.as_secs_f64(),
            control: None,
            runs: Vec::new(),
        }
    }

    /// All crashes.
    pub fn injected(&self) -> u64 {
        self.runs.iter().map(|run| run.crashes).sum()
    }

    /// Those in runs that came to their right end. Of a wrong run none is counted: which one it was
    /// is not known.
    pub fn survived(&self) -> u64 {
        self.runs.iter().filter(|run| run.wrong.is_empty()).map(|run| run.crashes).sum()
    }

    pub fn wrong_runs(&self) -> usize {
        self.runs.iter().filter(|run| !run.wrong.is_empty()).count()
    }

    /// Whether every crash was survived, and the control was not: where it came before the work's
    /// end, at least.
    pub fn is_good(&self) -> bool {
        let noticed = |run: &Run| run.crashes == 0 || !run.wrong.is_empty();
        self.wrong_runs() == 0 && self.control.as_ref().is_none_or(noticed)
    }

    fn control_text(&self) -> &'static str {
        match &self.control {
            None => "not tried",
            Some(run) if run.crashes == 0 => "ended before the crash",
            Some(run) if run.wrong.is_empty() => "unnoticed",
            Some(_) => "failed",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<10} {:<9} survived {} of {} crashes in {} runs ({:.1} s undisturbed); bare with one crash: {}",
            self.fixture,
            self.workload,
            self.survived(),
            self.injected(),
            self.runs.len(),
            self.bare_seconds,
            self.control_text()
        )
    }
}

/// All fixtures and workloads.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Of this format.
    pub version: u32,
    pub scale: Scale,
    /// Asked for, for each cell.
    pub crashes: u64,
    pub seed: u64,
    pub policy: String,
    pub cells: Vec<Cell>,
}

impl Table {
    pub fn new(scale: Scale, crashes: u64, seed: u64, policy: &str) -> Self {
        Self { version: 1, scale, crashes, seed, policy: policy.to_owned(), cells: Vec::new() }
    }

    /// Writes `random.json` and `random.md` into a directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        results::write(dir, "random", self, &self.markdown())
    }

    /// The paper's Table 5, with ours beside.
    pub fn markdown(&self) -> String {
        let mut names: Vec<Name> = self.cells.iter().map(|cell| cell.workload).collect();
        names.sort_unstable();
        names.dedup();
        let mut columns = vec![words("file system")];
        for name in &names {
            columns.extend([numbers(name.to_string()), numbers("paper")]);
        }
        columns.push(words("the bare daemon, after one crash"));
        let mut fixtures: Vec<Kind> = self.cells.iter().map(|cell| cell.fixture).collect();
        fixtures.dedup();
        let rows = fixtures.into_iter().map(|fixture| {
            let mut row = vec![fixture.to_string()];
            let find = |name: &Name| {
                self.cells
                    .iter()
                    .find(move |cell| cell.fixture == fixture && cell.workload == *name)
            };
            for name in &names {
                let ours = find(name).map_or("-".to_owned(), |cell| {
                    format!("{} of {}", cell.survived(), cell.injected())
                });
                let studied = matches!(fixture, Kind::Ntfs3g | Kind::Sshfs | Kind::Avfs);
                let theirs = if studied { format!("{PAPER} of {PAPER}") } else { "-".to_owned() };
                row.extend([ours, theirs]);
            }
            let control =
                |name: &Name| find(name).map(|cell| format!("{name} {}", cell.control_text()));
            let controls: Vec<_> = names.iter().filter_map(control).collect();
            row.push(controls.join(", "));
            row
        });
        let mut text = tabulate(&columns, rows);
        text += "\nSurvived crashes of those injected at random moments of the work.\n";
        let mut told: Vec<String> = Vec::new();
        for cell in &self.cells {
            let line = format!("- {}: {}", cell.workload, cell.parameters);
            if !told.contains(&line) {
                told.push(line);
            }
        }
        text + "\n" + &told.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_fixtures::table::unpadded;

    fn run(crashes: u64, wrong: &[&str]) -> Run {
        Run {
            seed: 1,
            crashes,
            seconds: 1.0,
            wrong: wrong.iter().map(|line| (*line).to_owned()).collect(),
            differences: wrong.len(),
            replay: None,
            last_words: String::new(),
            counted_by_belay: None,
            requests_failed: None,
            blackout: Blackout::default(),
        }
    }

    #[test]
    fn crashes_of_a_wrong_run_are_not_survived() {
        let workload = Workload::new(Name::Sort, Scale::Tiny, 1, 1).unwrap();
        let mut cell = Cell::new(Kind::Sshfs, &workload, Duration::from_secs(1));
        cell.runs = vec![run(60, &[]), run(40, &[])];
        cell.control = Some(run(1, &["it failed"]));
        assert_eq!((cell.injected(), cell.survived()), (100, 100));
        assert!(cell.is_good());
        cell.runs[1] = run(40, &["a hash"]);
        assert_eq!((cell.injected(), cell.survived()), (100, 60));
        assert!(!cell.is_good());
        let mut table = Table::new(Scale::Tiny, 100, 1, "auto");
        table.cells.push(cell);
        let page = unpadded(&table.markdown());
        assert!(page.contains("| sshfs | 60 of 100 | 100 of 100 | sort failed |"), "{page}");
    }

    #[test]
    fn a_control_that_goes_unnoticed_is_bad() {
        let workload = Workload::new(Name::Sort, Scale::Tiny, 1, 1).unwrap();
        let mut cell = Cell::new(Kind::Sshfs, &workload, Duration::from_secs(1));
        cell.runs = vec![run(1, &[])];
        cell.control = Some(run(1, &[]));
        assert!(!cell.is_good());
        // The work may have been over.
        cell.control = Some(run(0, &[]));
        assert!(cell.is_good());
    }
}
