//! How long a recovery takes, by how much there is to be recovered: Membrane's Table 6.
//!
//! The daemon is killed with so many megabytes that are not part of a checkpoint, so many files
//! open, or after so many operations, and an application that asks for an attribute at that moment
//! waits. What it waits for is told apart: the start of the daemon, its work on the requests of the
//! op-log, and belay's own part.

pub mod model;
mod state;
pub mod table;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, Signal, parse_signal, process};
use clap::Args;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde_json::Value;

use crate::begun::{Begun, Common};
use crate::blackout;
use crate::fixtures::Fixtures;
use crate::machine;
use crate::model::{Failure, Load};
use crate::nodes::raise_open_file_limit;
use crate::pages;
use crate::restart;
use crate::run_file::Results;
use crate::words::of_choice;
use model::{Crash, RecoveryCase, RecoveryFixture, RecoveryRun, Series};
use state::State;

/// Arguments of `recovery`.
#[derive(Args, Clone, Debug)]
pub struct RecoveryArgs {
    #[command(flatten)]
    common: Common,
    /// Daemons, separated by commas
    #[arg(long, default_value = "fuse2fs-ext2,fusefat,fuse2fs-ext3,fuse2fs-ext4")]
    fixtures: Fixtures,
    /// Crashes of each kind
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    crashes: u32,
    /// What there is more and more of, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Series::ALL)]
    series: Vec<Series>,
    /// Megabytes of new files
    #[arg(long, value_delimiter = ',', default_value = "10,20,40")]
    dirty_mb: Vec<u64>,
    /// Open files
    #[arg(long, value_delimiter = ',', default_value = "200,400,800")]
    sessions: Vec<u64>,
    /// Reads, writes of the same pages, and changes
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000")]
    records: Vec<u64>,
    /// The signal to crash the daemon with. Of others than KILL a daemon with several threads may
    /// still answer
    #[arg(long, default_value = "KILL", value_parser = parse_signal)]
    signal: Signal,
    /// Starts of the bare daemon
    #[arg(long, default_value_t = 20)]
    starts: usize,
    /// The policy with which the daemons are held
    #[arg(long, default_value = "epoch")]
    policy: String,
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&of_choice(self))
    }
}

/// Measures, and writes `recovery.json` and `recovery.md`; false where something could not be
/// measured.
pub fn run(args: &RecoveryArgs) -> Result<bool> {
    let begun = Begun::new(&args.common, "recovery")?;
    let mut run = RecoveryRun {
        policy: args.policy.clone(),
        crashes: args.crashes,
        fixtures: Vec::new(),
        failures: Vec::new(),
    };
    let mut page = String::new();
    for kind in &args.fixtures.0 {
        let mut fixture = RecoveryFixture {
            fixture: kind.to_string(),
            load: Load { before: machine::load(), after: 0.0 },
            ..RecoveryFixture::default()
        };
        if let Err(error) = measure(*kind, args, &mut fixture, &mut run.failures) {
            run.failures.push(Failure::new(kind, &error));
        }
        fixture.load.after = machine::load();
        run.fixtures.push(fixture);
        page = begun.write_with_page(Results::Recovery(run.clone()), pages::page_of)?;
    }
    println!("{page}\nresults: {}", begun.path().display());
    Ok(run.failures.is_empty())
}

fn measure(
    kind: Kind,
    args: &RecoveryArgs,
    fixture: &mut RecoveryFixture,
    failures: &mut Vec<Failure>,
) -> Result<()> {
    raise_open_file_limit()?;
    // Half of the starts before the crashes and half after, so that a change of the machine shows
    // in both.
    let half = args.starts.div_ceil(2);
    fixture.bare_start_us = blackout::bare_starts(kind, half)?;
    for series in &args.series {
        let sizes: &[u64] = match series {
            Series::Empty => &[0],
            Series::Dirty => &args.dirty_mb,
            Series::Sessions => &args.sessions,
            Series::Reads | Series::Rewrites | Series::Changes | Series::Default => &args.records,
        };
        for size in sizes {
            match case(kind, args, *series, *size) {
                Ok(case) => {
                    println!("{kind:<12} {}", table::line(&case, &fixture.bare_start_us));
                    fixture.cases.push(case);
                }
                Err(error) => {
                    failures
                        .push(Failure::new(format!("{kind}, {size} {}", series.unit()), &error));
                }
            }
        }
    }
    fixture.bare_start_us.extend(blackout::bare_starts(kind, args.starts - half)?);
    Ok(())
}

/// So many crashes with so much.
fn case(kind: Kind, args: &RecoveryArgs, series: Series, size: u64) -> Result<RecoveryCase> {
    // No checkpoint by time, nor an early one: what there is to be recovered is what was made.
    // However often it is crashed, that is not its own fault.
    let mut words = vec!["--policy", &args.policy, "--checkpoint-interval=1h", "--max-crashes=0"];
    if series != Series::Default {
        words.push("--checkpoint-early=0");
    }
    let mode = Mode::Held { extra_args: words.into_iter().map(str::to_owned).collect() };
    let fixture = Fixture::start(
        kind,
        &mode,
        &FixtureOptions { repeatable: true, ..FixtureOptions::default() },
    )?;
    let mut state = State::new(fixture.root(), series, size)?;
    let mut crashes = Vec::new();
    for number in 1..=args.crashes {
        state.make()?;
        let crash = crash(&fixture, &mut state, args.signal, number);
        crashes.push(crash.with_context(|| format!("crash {number}"))?);
        state.clear().with_context(|| format!("after crash {number}"))?;
    }
    fixture.stop()?;
    Ok(RecoveryCase { series, size, crashes })
}

fn crash(fixture: &Fixture, state: &mut State, signal: Signal, number: u32) -> Result<Crash> {
    // Asking belay takes time, so it is done before.
    let daemon = fixture.daemon_pid()?;
    let probe = state.probe();
    let begin = Instant::now();
    process::kill(daemon, signal)?;
    // Not what the kernel remembers.
    let flags = AtFlags::STATX_FORCE_SYNC;
    let stat =
        statx(CWD, &probe, flags, StatxFlags::BASIC_STATS).context("asking for an attribute")?;
    let pause_us = begin.elapsed().as_secs_f64() * 1e6;
    ensure!(stat.stx_size == 64, "the file that was asked for is another one");
    let cpu_us = cpu_time(fixture.daemon_pid()?)?;
    let reopened_us = state.reopen()?;
    let report = restart::report(fixture, number)?;
    let crash = understand(&report).with_context(|| format!("in report {number}"))?;
    Ok(Crash { pause_us, cpu_us, reopened_us, ..crash })
}

/// What a process's threads have used of the CPU, in microseconds.
fn cpu_time(process: u32) -> Result<f64> {
    let dir = format!("/proc/{process}/task");
    let mut nanos = 0.0;
    for thread in fs::read_dir(&dir).with_context(|| format!("list {dir}"))? {
        let path = thread.with_context(|| format!("list {dir}"))?.path().join("schedstat");
        // It may have ended just now.
        let text = fs::read_to_string(path).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(nanos / 1e3)
}

fn understand(report: &Value) -> Result<Crash> {
    let outcome = report.get("outcome").and_then(Value::as_str).unwrap_or("missing");
    ensure!(outcome == "recovered", "the outcome is {outcome}");
    let at = |name: &str| {
        let phase = report.pointer(&format!("/phases_us/{name}")).and_then(Value::as_f64);
        phase.with_context(|| format!("the phase {name} was not reached"))
    };
    let counter = |name: &str| {
        report.pointer(&format!("/counters/{name}")).and_then(Value::as_f64).unwrap_or(0.0)
    };
    Ok(Crash {
        blackout_us: report.get("blackout_us").and_then(Value::as_f64).context("no blackout_us")?,
        attached_us: at("attached")?,
        start_us: at("ready")? - at("attached")?,
        settle_us: at("open")? - at("ready")?,
        daemon_us: counter("rolled_forward_daemon_ns") / 1e3,
        records: counter("rolled_forward") as u64,
        ..Crash::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_are_understood() {
        let report = json!({"outcome": "recovered", "blackout_us": 9000,
            "phases_us": {"spawned": 400, "attached": 1500, "first_read": 2000, "ready": 2500, "open": 8500},
            "counters": {"rolled_forward": 100, "rolled_forward_daemon_ns": 4_000_000}});
        let crash = understand(&report).unwrap();
        assert_eq!((crash.attached_us, crash.start_us, crash.settle_us), (1500.0, 1000.0, 6000.0));
        assert_eq!((crash.daemon_us, crash.records), (4000.0, 100));
        assert!(cpu_time(std::process::id()).unwrap() > 0.0);
        assert!(understand(&json!({"outcome": "gave_up"})).is_err());
        assert!(understand(&json!({"outcome": "recovered", "blackout_us": 1})).is_err());
    }
}
