//! The soak of the daemons of the table, one after the other, with results that are kept in a file.

pub mod certify;
pub mod page;
mod profiles;
mod results;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use belay_fixtures::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::interrupt;
use crate::soak::{self, SoakArgs};

/// Arguments of `zoo`.
#[derive(Clone, Debug, clap::Args)]
pub struct ZooArgs {
    /// Kills of each daemon
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// No longer than this on each daemon
    #[arg(long, value_parser = humantime::parse_duration, default_value = "20m")]
    limit: Duration,
    /// These daemons only, separated by commas [default: all of the table]
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,
    /// Seed of the operation sequences [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Mean time between a successor's first answer and its death
    #[arg(long, value_parser = humantime::parse_duration, default_value = "100ms")]
    every: Duration,
    /// How long an operation may take before it counts as hanging
    #[arg(long, value_parser = humantime::parse_duration, default_value = "5m")]
    op_timeout: Duration,
    /// Keep the results in this file, as JSON; what is known of other daemons stays in it, and of
    /// the same ones is added up
    #[arg(long)]
    json: Option<PathBuf>,
    /// Forget what the file says of these daemons: it tells of code that has been mended
    #[arg(long, requires = "json")]
    anew: bool,
}

/// What became of one daemon, in all runs that are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Kills, operations, and how many of these were refused by both sides.
    pub kills: u64,
    pub ops: u64,
    pub refused: u64,
    pub divergences: u64,
    pub seconds: f64,
    /// One of each run.
    pub seeds: Vec<u64>,
    /// Median of the run with the most kills, and the longest blackout of all, microseconds.
    pub blackout_us: (f64, f64),
    /// As `belay status` says.
    pub policy: String,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
}

impl Outcome {
    /// Adds an earlier run, what went wrong in it as well.
    fn add(&mut self, earlier: &Self) {
        if self.failure.is_none() {
            self.failure.clone_from(&earlier.failure);
        }
        self.divergences += earlier.divergences;
        if self.policy.is_empty() {
            self.policy.clone_from(&earlier.policy);
        }
        if earlier.kills > self.kills {
            self.blackout_us.0 = earlier.blackout_us.0;
        }
        self.blackout_us.1 = self.blackout_us.1.max(earlier.blackout_us.1);
        self.kills += earlier.kills;
        self.ops += earlier.ops;
        self.refused += earlier.refused;
        self.seconds += earlier.seconds;
        self.seeds.splice(0..0, earlier.seeds.iter().copied());
    }
}

/// The file of results: by daemon, then `root` or `user`.
type Results = BTreeMap<String, BTreeMap<String, Outcome>>;

/// Runs the soaks; true if nothing diverged, and every daemon was killed as often as was asked for.
pub fn run(args: &ZooArgs) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    let user = if rustix::process::geteuid().is_root() { "root" } else { "user" };
    let all: Vec<Kind> =
        if args.only.is_empty() { Kind::zoo().collect() } else { args.only.clone() };
    let (mut good, mut held) = (true, 0);
    for kind in all {
        if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(false);
        }
        if let Some(daemon) = kind.entry()
            && (!daemon.limit.is_empty() || (daemon.root_only && user != "root"))
        {
            continue;
        }
        let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        let soak =
            SoakArgs::of_one(kind, seed, args.kills, args.limit, args.every, args.op_timeout);
        let result = match soak::run_one(&soak, kind, &interrupted) {
            Ok(report) => {
                println!("{report}");
                if let Some(divergence) = &report.divergence {
                    println!("{divergence}");
                }
                let text = |name: &str| {
                    let value = report.status.as_ref().and_then(|status| status.get(name));
                    value.and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                Outcome {
                    kills: report.kills,
                    ops: report.ops,
                    refused: report.refused,
                    divergences: report.divergences,
                    seconds: report.seconds,
                    seeds: vec![seed],
                    blackout_us: (
                        report.blackout.median_us.unwrap_or_default(),
                        report.blackout.max_us.unwrap_or_default(),
                    ),
                    policy: text("policy"),
                    failure: report.divergence.as_ref().map(ToString::to_string),
                }
            }
            Err(why) => {
                println!("{kind:<15} failed: {why:#}");
                Outcome {
                    seeds: vec![seed],
                    failure: Some(format!("{why:#}")),
                    ..Outcome::default()
                }
            }
        };
        if result.failure.is_none() && result.kills < args.kills {
            println!("{kind}: {} of {} kills within the time", result.kills, args.kills);
        }
        let whole = result.failure.is_none() && result.kills >= args.kills;
        good &= whole;
        held += u64::from(whole);
        if let Some(path) = &args.json {
            keep(path, kind.name(), user, result, args.anew)?;
        }
    }
    println!("{held} daemons held by {user} through all kills, without a divergence");
    Ok(good)
}

fn keep(path: &Path, name: &str, user: &str, mut result: Outcome, anew: bool) -> Result<()> {
    let mut all: Results = results::read(path)?;
    let by_user = all.entry(name.to_owned()).or_default();
    if let Some(earlier) = by_user.get(user)
        && !anew
    {
        result.add(earlier);
    }
    by_user.insert(user.to_owned(), result);
    results::write(path, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_stays_on_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("soak.json");
        let run = |kills, failure: Option<&str>| Outcome {
            kills,
            divergences: u64::from(failure.is_some()),
            failure: failure.map(str::to_owned),
            ..Outcome::default()
        };
        keep(&path, "one", "root", run(30, Some("bad")), false).expect("kept");
        keep(&path, "one", "root", run(70, None), false).expect("kept");
        let known =
            |path: &Path| results::read::<Results>(path).expect("results")["one"]["root"].clone();
        let all = known(&path);
        assert_eq!((all.kills, all.divergences, all.failure.as_deref()), (100, 1, Some("bad")));
        keep(&path, "one", "root", run(5, None), true).expect("kept");
        let all = known(&path);
        assert_eq!((all.kills, all.divergences, all.failure), (5, 0, None));
    }
}
