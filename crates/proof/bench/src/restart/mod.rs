//! What one crash in the middle of a sort costs: the paper's Table 8.
//!
//! Rounds of sorts on a bare and on a held mount of the same kind. In each round the held one's
//! daemon is crashed once, at a random moment in the middle half of the sort; in some of the rounds
//! the bare mount and the held one also sort undisturbed, for comparison. Every output is checked.
//! How long the restart took, and when each of its steps was reached, is what belay's crash reports
//! say; beside it stands how long the bare daemon takes to start.

pub mod model;
pub mod table;

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use belay_fixtures::{
    Fixture, FixtureOptions, Kind, Mode, Signal, find_number, parse_signal, process,
};
use belay_workloads::{Watch, Workload};
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::begun::{Begun, Common};
use crate::blackout;
use crate::fixtures::Fixtures;
use crate::machine;
use crate::model::{Failure, Load};
use crate::nodes::raise_open_file_limit;
use crate::pages;
use crate::run_file::Results;
use crate::stats::{Spread, median};
use model::{Crash, RestartFixture, RestartRun};

/// How long a sort, or a report, may take.
const LIMIT: Duration = Duration::from_secs(1800);
/// How long belay may take to write its report.
const REPORT: Duration = Duration::from_secs(60);
/// So many sorts in a row that end before their crash are too many.
const MISSES: usize = 20;

/// Arguments of `restart`.
#[derive(Args, Clone, Debug)]
pub struct RestartArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas, or `all`
    #[arg(long, default_value = "ntfs-3g,sshfs,avfs")]
    fixtures: Fixtures,
    /// Crashes of each daemon, each in a sort of its own
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    crashes: u32,
    /// Rounds in which it is sorted without a crash as well, spread evenly
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    plain: u32,
    /// Size of the text in MB
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    size_mb: u64,
    /// The signal to crash the daemon with
    #[arg(long, default_value = "SEGV", value_parser = parse_signal)]
    signal: Signal,
    /// Starts of the bare daemon
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// Seed of the moments of the crashes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Measures, and writes `restart.json` and `restart.md`; false where something could not be
/// measured.
pub fn run(args: &RestartArgs) -> Result<bool> {
    let workload = Workload::sort(args.size_mb * 1_000_000, args.seed)?;
    let begun = Begun::new(&args.common, "restart")?;
    let mut run = RestartRun {
        size_mb: args.size_mb,
        crashes: args.crashes,
        fixtures: Vec::new(),
        failures: Vec::new(),
    };
    let mut page = String::new();
    for kind in &args.fixtures.0 {
        match measure(*kind, args, &workload) {
            Ok(fixture) => {
                println!("{}", table::line(&fixture));
                run.fixtures.push(fixture);
            }
            Err(error) => run.failures.push(Failure::new(kind, &error)),
        }
        page = begun.write_with_page(Results::Restart(run.clone()), pages::page_of)?;
    }
    println!("{page}\nresults: {}", begun.path().display());
    Ok(run.failures.is_empty())
}

fn start(kind: Kind, mode: &Mode, workload: &Workload) -> Result<Fixture> {
    raise_open_file_limit()?;
    let options = FixtureOptions { image_mib: workload.image_mib(), ..FixtureOptions::default() };
    let fixture = Fixture::start(kind, mode, &options)?;
    workload.setup(fixture.root())?;
    Ok(fixture)
}

fn measure(kind: Kind, args: &RestartArgs, workload: &Workload) -> Result<RestartFixture> {
    let mut result = RestartFixture {
        fixture: kind.to_string(),
        load: Load { before: machine::load(), after: 0.0 },
        ..RestartFixture::default()
    };
    // Half of the starts before the crashes and half after, so that a change of the machine shows
    // in both.
    let half = args.starts.div_ceil(2);
    result.bare_start_us = blackout::bare_starts(kind, half)?;
    let bare = start(kind, &Mode::Bare, workload)?;
    // However often it is crashed, that is not its own fault.
    let held = Mode::Held { extra_args: vec!["--max-crashes=0".to_owned()] };
    let held = start(kind, &held, workload)?;
    let mut random = StdRng::seed_from_u64(args.seed);
    let mut expected = plain_sort(&held, workload).context("a first sort")?.as_secs_f64();
    for round in 0..args.crashes {
        if u64::from(round) * u64::from(args.plain) % u64::from(args.crashes)
            < u64::from(args.plain.min(args.crashes))
        {
            let on_bare = || plain_sort(&bare, workload).context("a sort on the bare mount");
            let on_held = || plain_sort(&held, workload).context("a sort on the held mount");
            // They take turns in who is first.
            let (one, other) = if result.bare_s.len().is_multiple_of(2) {
                let one = on_bare()?;
                (one, on_held()?)
            } else {
                let other = on_held()?;
                (on_bare()?, other)
            };
            result.bare_s.push(one.as_secs_f64());
            result.held_s.push(other.as_secs_f64());
            expected = median(&result.held_s).unwrap_or(expected);
        }
        let what = || format!("the sort with crash {}", round + 1);
        let mut at = Duration::from_secs_f64(expected * random.random_range(0.25..0.75));
        let mut misses = 0;
        let time = loop {
            if let Some(time) = sort(&held, workload, Some((at, args.signal))).with_context(what)? {
                break time;
            }
            misses += 1;
            ensure!(misses < MISSES, "{}: the sort always ended before it", what());
            at = at.mul_f64(0.7);
        };
        result.crashed_s.push(time.as_secs_f64());
        let told = report(&held, round + 1).and_then(|report| understand(&report));
        result.crashes.push(told.with_context(what)?);
    }
    // In this order: where mounts are private, the held daemon's namespace has a copy of the bare
    // one's mount, which keeps that daemon from ending.
    held.stop()?;
    bare.stop()?;
    result.bare_start_us.extend(blackout::bare_starts(kind, args.starts - half)?);
    result.load.after = machine::load();
    result.summarise();
    Ok(result)
}

fn plain_sort(fixture: &Fixture, workload: &Workload) -> Result<Duration> {
    sort(fixture, workload, None)?.context("nothing was to crash")
}

/// Sorts, with a crash after so long, if any; says how long the sort took, or nothing if it ended
/// before the crash. The output is checked and removed.
fn sort(
    fixture: &Fixture,
    workload: &Workload,
    crash: Option<(Duration, Signal)>,
) -> Result<Option<Duration>> {
    // Asking belay takes time, so it is done before.
    let daemon = fixture.daemon_pid()?;
    let (over, ended) = mpsc::channel::<()>();
    let begin = Instant::now();
    let (done, time, crashed) = std::thread::scope(|scope| {
        let killer = crash.map(|(after, signal)| {
            scope.spawn(move || match ended.recv_timeout(after) {
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    process::kill(daemon, signal).map(|()| true)
                }
                _ => Ok(false),
            })
        });
        let done = workload.work(fixture.root(), &Watch::limit(LIMIT));
        let time = begin.elapsed();
        drop(over);
        let killed = killer.map(|killer| killer.join());
        (done, time, killed)
    });
    let crashed = match crashed {
        Some(killed) => killed.map_err(|_| anyhow!("the killer panicked"))??,
        None => true,
    };
    let done = done.with_context(|| format!("sorting{}", fixture.last_words()))?;
    workload.verify(&workload.look(fixture.root(), &done)?)?;
    workload.again(fixture.root())?;
    Ok(crashed.then_some(time))
}

/// What belay reports of the crash with this number.
pub fn report(fixture: &Fixture, number: u32) -> Result<Value> {
    let deadline = Instant::now() + REPORT;
    let status = loop {
        let status = fixture.belay_status()?;
        if find_number(&status, &["reports"]).is_some_and(|reports| reports >= f64::from(number)) {
            break status;
        }
        ensure!(Instant::now() < deadline, "belay wrote no report {number} within {REPORT:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let dir = status.get("report_dir").and_then(Value::as_str).context("no report_dir")?;
    let path = Path::new(dir).join(format!("{number:04}.json"));
    let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
}

fn understand(report: &Value) -> Result<Crash> {
    let outcome = report.get("outcome").and_then(Value::as_str).unwrap_or("missing");
    ensure!(outcome == "recovered", "the outcome is {outcome}");
    let phases = report.get("phases_us").and_then(Value::as_object).context("no phases_us")?;
    let reached = phases.iter().filter_map(|(name, at)| Some((name.clone(), at.as_f64()?)));
    Ok(Crash {
        blackout_us: report.get("blackout_us").and_then(Value::as_f64).context("no blackout_us")?,
        in_flight: report.get("in_flight").and_then(Value::as_array).map_or(0, Vec::len),
        phases_us: reached.collect(),
    })
}

impl RestartFixture {
    fn summarise(&mut self) {
        let blackouts: Vec<f64> = self.crashes.iter().map(|crash| crash.blackout_us).collect();
        self.blackout_us = Spread::of(&blackouts);
        self.blackout_mean_us = mean(&blackouts);
        self.bare_start = Spread::of(&self.bare_start_us);
        self.phases = model::PHASES
            .iter()
            .filter_map(|name| {
                let at: Vec<f64> =
                    self.crashes.iter().filter_map(|c| c.phases_us.get(*name).copied()).collect();
                Some(((*name).to_owned(), Spread::of(&at)?))
            })
            .collect();
    }
}

fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_are_understood() {
        let report = |outcome: &str| {
            json!({"outcome": outcome, "blackout_us": 2028, "in_flight": ["WRITE ..."],
                "phases_us": {"spawned": 492, "attached": 1749, "first_reply": null}})
        };
        let crash = understand(&report("recovered")).unwrap();
        assert_eq!((crash.blackout_us, crash.in_flight), (2028.0, 1));
        assert_eq!(crash.phases_us.get("attached"), Some(&1749.0));
        assert_eq!(crash.phases_us.get("first_reply"), None);
        assert!(understand(&report("interrupted")).is_err());
        let mut fixture =
            RestartFixture { crashes: vec![crash.clone(), crash], ..RestartFixture::default() };
        fixture.summarise();
        assert_eq!(fixture.blackout_mean_us, Some(2028.0));
        let names: Vec<_> = fixture.phases.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["spawned", "attached"]);
    }

    #[test]
    fn plain_sorts_are_spread_over_the_rounds() {
        // As in `measure`.
        for (crashes, plain) in [(100u64, 20u64), (10, 3), (5, 5), (3, 20), (7, 1)] {
            let chosen = (0..crashes).filter(|round| round * plain % crashes < plain.min(crashes));
            assert_eq!(chosen.count() as u64, plain.min(crashes), "{plain} of {crashes}");
        }
    }
}
