//! `belay-sim`: simulates until so many operations were compared, and says how many there were.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use belay_sim::scenario::{Scenario, Tally};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Simulates applications, a kernel, and daemons that die at any step, around the host that ships
///
/// Each result that an application gets is compared with that of a file system in which nobody dies. The seed decides
/// everything; a run that goes wrong prints the command that repeats it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Go on until so many operations of applications were compared
    #[arg(long, default_value_t = 10_000_000)]
    operations: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is simulated; all, unless some are given
    #[arg(long, value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)).map(named))]
    scenario: Vec<Scenario>,
    /// Threads that simulate; as many as there are CPUs, unless given
    #[arg(long)]
    threads: Option<usize>,
    /// Write what was simulated to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn named(name: String) -> Scenario {
    let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
    found.expect("the parser takes no other name")
}

/// What the result file holds.
#[derive(Debug, Default, Serialize)]
struct Results {
    schema_version: u32,
    first_seed: u64,
    operations: u64,
    scenarios: BTreeMap<&'static str, Counts>,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    seeds: u64,
    #[serde(flatten)]
    tally: Tally,
}

/// How far a scenario is.
struct Share {
    scenario: Scenario,
    next: u64,
    tally: Tally,
}

/// What the threads share.
struct Work {
    operations: u64,
    failed: AtomicBool,
    shares: Mutex<Vec<Share>>,
    bar: ProgressBar,
}

impl Work {
    /// Takes the next seed of the scenario that is least done, until enough is done or something has gone wrong.
    fn pursue(&self) {
        while let Some((at, scenario, seed)) = self.next() {
            // It says itself what is wrong.
            let Ok(tally) = catch_unwind(|| scenario.run(seed)) else {
                self.failed.store(true, Ordering::Relaxed);
                let name = scenario.name();
                self.bar.suspend(|| {
                    eprintln!(
                        "belay-sim: seed {seed} of {name} goes wrong; again: BELAY_TRACE=1 belay-sim --scenario {name} \
                         --seed {seed} --operations 1 --threads 1"
                    );
                });
                return;
            };
            self.bar.inc(tally.operations);
            if let Some(share) = self.shares().get_mut(at) {
                share.tally.join(tally);
            }
        }
    }

    fn next(&self) -> Option<(usize, Scenario, u64)> {
        let mut shares = self.shares();
        let done: u64 = shares.iter().map(|share| share.tally.operations).sum();
        if done >= self.operations || self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let all = shares.iter_mut().enumerate();
        let (at, share) = all.min_by_key(|(_, share)| share.tally.operations)?;
        share.next += 1;
        Some((at, share.scenario, share.next - 1))
    }

    fn shares(&self) -> MutexGuard<'_, Vec<Share>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(cli: &Cli) -> Result<()> {
    let style =
        ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} operations, {eta} left")?;
    let scenarios = if cli.scenario.is_empty() { &Scenario::ALL[..] } else { &cli.scenario };
    let share = |scenario: &Scenario| Share {
        scenario: *scenario,
        next: cli.seed,
        tally: Tally::default(),
    };
    let work = Work {
        operations: cli.operations,
        failed: AtomicBool::new(false),
        shares: Mutex::new(scenarios.iter().map(share).collect()),
        bar: ProgressBar::new(cli.operations).with_style(style),
    };
    let threads = cli.threads.or_else(|| thread::available_parallelism().ok().map(usize::from));
    thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1).max(1) {
            scope.spawn(|| work.pursue());
        }
    });
    work.bar.finish_and_clear();
    let mut results = Results { schema_version: 1, first_seed: cli.seed, ..Results::default() };
    for share in work.shares().iter() {
        let (name, tally) = (share.scenario.name(), share.tally);
        let seeds = share.next - cli.seed;
        println!(
            "{name}: {} seeds, {} simulations, {} operations, {} crashes at one of {} steps",
            seeds, tally.simulations, tally.operations, tally.crashes, tally.steps
        );
        results.operations += tally.operations;
        results.scenarios.insert(name, Counts { seeds, tally });
    }
    if work.failed.load(Ordering::Relaxed) {
        bail!("what an application saw differs from what it would have seen without a crash");
    }
    println!("{} operations: all as they should be", results.operations);
    let Some(path) = &cli.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&results)? + "\n";
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn main() -> ExitCode {
    // Deaths of simulated daemons unwind without a hook; what this prints is wrong.
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belay-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
