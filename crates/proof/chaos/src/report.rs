//! What a soak found, for people and for programs.

use std::fmt;
use std::path::Path;
use std::slice;

use anyhow::{Context, Result};
use belay_fixtures::table::{numbers, tabulate, words};
use belay_fixtures::{Kind, find_number};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compare::Oracle;

/// Of a daemon with more mounts than these, a page has one row.
const MANY: usize = 20;

/// Blackouts as `belay status` gives them, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Blackout {
    pub median_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub max_us: Option<f64>,
}

impl Blackout {
    /// Takes them out of a status.
    pub fn of(status: &Value) -> Self {
        let take = |name| find_number(status, &["blackout", name]);
        Self {
            median_us: take("median").or_else(|| take("p50")),
            p99_us: take("p99"),
            max_us: take("max"),
        }
    }
}

impl Blackout {
    /// That of many mounts: the medians of their medians and of their p99, and the longest of all.
    fn over(runs: &[FixtureReport]) -> Self {
        let sorted = |take: fn(&Self) -> Option<f64>| {
            let mut all: Vec<f64> = runs.iter().filter_map(|one| take(&one.blackout)).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let median = |all: Vec<f64>| all.get(all.len() / 2).copied();
        Self {
            median_us: median(sorted(|one| one.median_us)),
            p99_us: median(sorted(|one| one.p99_us)),
            max_us: sorted(|one| one.max_us).last().copied(),
        }
    }
}

impl fmt::Display for Blackout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |value: Option<f64>| {
            value.map_or_else(|| "?".to_owned(), |us| format!("{:.1}", us / 1000.0))
        };
        write!(f, "{} / {} / {} ms", ms(self.median_us), ms(self.p99_us), ms(self.max_us))
    }
}

/// The first thing that was not the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Divergence {
    /// Number of the operation in the whole sequence.
    pub index: u64,
    pub worker: Option<usize>,
    /// The operation, or the part of the check, that went differently.
    pub what: String,
    pub oracle: String,
    pub subject: String,
    /// What the same worker did before.
    pub before: Vec<String>,
    /// The command that drives the same sequence again.
    pub replay: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DIVERGENCE at operation {}", self.index)?;
        if let Some(worker) = self.worker {
            write!(f, " (worker {worker})")?;
        }
        if !self.before.is_empty() {
            write!(f, "\n  before:\n    {}", self.before.join("\n    "))?;
        }
        write!(
            f,
            "\n  {}\n  oracle:  {}\n  subject: {}\n  replay: {}",
            self.what, self.oracle, self.subject, self.replay
        )
    }
}

/// What became of one fixture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FixtureReport {
    pub fixture: Kind,
    pub oracle: Oracle,
    pub seed: u64,
    pub processes: usize,
    pub ops: u64,
    /// Of these, refused by both sides, as they may well be.
    pub refused: u64,
    /// Of these, without anything to work on.
    pub void: u64,
    pub kills: u64,
    pub divergences: u64,
    /// Results on the subject that only a dying file system gives, whether or not the oracle gave
    /// them too.
    pub errors: u64,
    pub seconds: f64,
    pub blackout: Blackout,
    pub slowest_op_us: u64,
    pub divergence: Option<Divergence>,
    /// belay's own status at the end.
    pub status: Option<Value>,
}

impl fmt::Display for FixtureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<15} {} ops, {} kills, {} divergences, {} errors in {:.1} s",
            self.fixture, self.ops, self.kills, self.divergences, self.errors, self.seconds
        )?;
        if self.status.is_some() {
            write!(f, "; blackout median / p99 / max {}", self.blackout)?;
        }
        write!(f, "; slowest operation {:.1} ms", self.slowest_op_us as f64 / 1000.0)
    }
}

/// Operations, kills, divergences and errors of these.
fn counted(runs: &[FixtureReport]) -> [u64; 4] {
    runs.iter().fold([0; 4], |[ops, kills, divergences, errors], one| {
        [ops + one.ops, kills + one.kills, divergences + one.divergences, errors + one.errors]
    })
}

/// How many milliseconds there are to each kill of these.
fn a_kill(runs: &[FixtureReport]) -> String {
    let [_, kills, ..] = counted(runs);
    let seconds: f64 = runs.iter().map(|one| one.seconds).sum();
    if kills == 0 { String::new() } else { format!("{:.0}", seconds * 1000.0 / kills as f64) }
}

/// The command line as a reader can repeat it.
pub fn command_line() -> String {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    format!("belay-chaos {}", words.join(" "))
}

/// All fixtures of a soak.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Of this format.
    pub version: u32,
    /// The command that repeats it; the moments of the kills are others each time.
    pub command: String,
    pub ops: u64,
    pub kills: u64,
    pub divergences: u64,
    pub errors: u64,
    pub fixtures: Vec<FixtureReport>,
}

impl Report {
    /// Sums up.
    pub fn new(fixtures: Vec<FixtureReport>) -> Self {
        let [ops, kills, divergences, errors] = counted(&fixtures);
        Self { version: 1, command: command_line(), ops, kills, divergences, errors, fixtures }
    }

    /// Writes it as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("encoding the report")?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
    }

    /// What it was compared with, and who was killed.
    fn against(&self) -> &'static str {
        match self.fixtures.iter().all(|one| one.fixture.is_volume()) {
            true => {
                "a plain directory. Every process of the volume is killed at random instants, one in four times several at once; \
                 of keeper and supervisor one at a time, and not within two seconds of the last such kill. Each volume is checked \
                 whenever it was unmounted."
            }
            false => {
                "a bare mount of the same daemon that nobody kills. The daemon is killed at random instants, also in recoveries."
            }
        }
    }

    /// Writes it as a page in Markdown, and as JSON beside it without what belay says of itself.
    pub fn write_page(&self, path: &Path) -> Result<()> {
        let mut results = self.clone();
        results.fixtures.iter_mut().for_each(|one| one.status = None);
        results.write(&path.with_extension("json"))?;
        std::fs::write(path, self.page()).with_context(|| format!("writing {}", path.display()))
    }

    /// The page in Markdown.
    pub fn page(&self) -> String {
        let mut text = format!(
            "Random operations on a held mount are compared, answer by answer and at the end tree by tree, with {}\n\n\
             \u{20}   {}\n\n",
            self.against(),
            self.command
        );
        let counts = [
            "operations",
            "kills",
            "divergences",
            "errors",
            "ms a kill",
            "blackout median / p99 / max",
        ];
        let columns = [vec![words("daemon"), numbers("seed")], counts.map(numbers).to_vec()];
        let row = |name: String, seed: String, runs: &[FixtureReport], blackout: String| {
            let counts = counted(runs).map(|count| count.to_string()).to_vec();
            [vec![name, seed], counts, vec![a_kill(runs), blackout]].concat()
        };
        let one = |one: &FixtureReport| {
            let (name, seed) = (one.fixture.to_string(), one.seed.to_string());
            row(name, seed, slice::from_ref(one), one.blackout.to_string())
        };
        let of = |runs: &&[FixtureReport]| match runs {
            [first, .., last] if runs.len() > MANY => {
                let name = format!("{}, {} mounts", first.fixture, runs.len());
                let seeds = format!("{} to {}", first.seed, last.seed);
                vec![row(name, seeds, runs, Blackout::over(runs).to_string())]
            }
            runs => runs.iter().map(one).collect(),
        };
        let daemons: Vec<&[FixtureReport]> =
            self.fixtures.chunk_by(|one, other| one.fixture == other.fixture).collect();
        let rows = daemons.iter().flat_map(of);
        let total = row("total".to_owned(), String::new(), &self.fixtures, String::new());
        text += &tabulate(&columns.concat(), rows.chain([total]));
        text += "\nms a kill: the time of the runs divided by the number of kills, with the ends of mounts, and all that is compared and checked.\n";
        if daemons.iter().any(|runs| runs.len() > MANY) {
            text += "\nThe blackouts of many mounts: the median of their medians and of their p99, and the maximum of all.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_fixtures::table::unpadded;

    fn one(fixture: Kind, seed: u64) -> FixtureReport {
        let us = Some(1000.0 * seed as f64);
        FixtureReport {
            fixture,
            oracle: Oracle::Dir,
            seed,
            processes: 1,
            ops: 10,
            refused: 0,
            void: 0,
            kills: 2,
            divergences: 0,
            errors: 0,
            seconds: 1.0,
            blackout: Blackout { median_us: us, p99_us: us, max_us: us },
            slowest_op_us: 1,
            divergence: None,
            status: None,
        }
    }

    #[test]
    fn many_mounts_of_a_daemon_have_one_row() {
        let many = (1..=21).map(|seed| one(Kind::Volume, seed));
        let report = Report::new(many.chain([one(Kind::Bindfs, 5)]).collect());
        let page = unpadded(&report.page());
        for row in [
            "| volume, 21 mounts | 1 to 21 | 210 | 42 | 0 | 0 | 500 | 11.0 / 11.0 / 21.0 ms |",
            "| bindfs | 5 | 10 | 2 | 0 | 0 | 500 | 5.0 / 5.0 / 5.0 ms |",
            "| total | | 220 | 44 | 0 | 0 | 500 | |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        assert!(page.contains("blackouts of many mounts"));
        let few = Report::new((1..=20).map(|seed| one(Kind::Volume, seed)).collect()).page();
        assert!(!few.contains("many mounts") && unpadded(&few).contains("| volume | 20 |"));
    }
}
