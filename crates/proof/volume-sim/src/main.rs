//! `belay-volume-sim`: simulates volumes until so many operations were compared, and says what came of it.
#![forbid(unsafe_code)]

mod page;

use anyhow::{Context, Result, bail};
use belay_volume_sim::outcome::Outcome;
use belay_volume_sim::sabotage::Sabotage;
use belay_volume_sim::scenario::{Scenario, first_found};
use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use page::{Counts, Found, Results};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Seeds that are looked through for what is done wrong on purpose.
const SEEDS: u64 = 200;

/// Simulates volumes whose processes die at any step, whose power fails at any write, and whose disks do everything wrong
///
/// What is read is compared with a plain directory, or with a model. The seed decides everything; a run that goes wrong prints the
/// command that repeats it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Go on until so many operations were compared
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
    jobs: Option<usize>,
    /// Write what was simulated to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page about it to this file
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

fn named(name: String) -> Scenario {
    let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
    found.expect("the parser takes no other name")
}

/// How far a scenario is.
struct Share {
    scenario: Scenario,
    next: u64,
    /// Operations that runs which are under way will have done, as far as is known.
    under_way: u64,
    outcome: Outcome,
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
        while let Some((at, scenario, seed, guess)) = self.next() {
            let ran = catch_unwind(|| scenario.run(seed));
            let outcome = match ran.unwrap_or_else(|_| Err("it panics".to_owned())) {
                Ok(outcome) => outcome,
                Err(why) => {
                    self.failed.store(true, Ordering::Relaxed);
                    let name = scenario.name();
                    self.bar.suspend(|| {
                        eprintln!(
                            "belay-volume-sim: seed {seed} of {name}: {why}\nagain: belay-volume-sim --scenario {name} \
                             --seed {seed} --operations 1 --jobs 1"
                        );
                    });
                    return;
                }
            };
            self.bar.inc(outcome.operations);
            if let Some(share) = self.shares().get_mut(at) {
                share.outcome.join(&outcome);
                share.under_way -= guess;
            }
        }
    }

    fn next(&self) -> Option<(usize, Scenario, u64, u64)> {
        let mut shares = self.shares();
        let done: u64 = shares.iter().map(|share| share.outcome.operations).sum();
        if done >= self.operations || self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let all = shares.iter_mut().enumerate();
        let is = |share: &Share| share.outcome.operations + share.under_way;
        let (at, share) = all.min_by_key(|(_, share)| is(share) / share.scenario.share())?;
        let guess = share.outcome.operations / (share.next - 1).max(1);
        share.next += 1;
        share.under_way += guess;
        Some((at, share.scenario, share.next - 1, guess))
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
        under_way: 0,
        outcome: Outcome::default(),
    };
    let work = Work {
        operations: cli.operations,
        failed: AtomicBool::new(false),
        shares: Mutex::new(scenarios.iter().map(share).collect()),
        bar: ProgressBar::new(cli.operations).with_style(style),
    };
    let jobs = cli.jobs.or_else(|| thread::available_parallelism().ok().map(usize::from));
    thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(1).max(1) {
            scope.spawn(|| work.pursue());
        }
    });
    work.bar.finish_and_clear();
    let (first_seed, asked) = (cli.seed, cli.operations);
    let mut results = Results { schema_version: 1, first_seed, asked, ..Results::default() };
    for share in work.shares().iter() {
        let (name, outcome) = (share.scenario.name(), share.outcome.clone());
        let seeds = share.next - cli.seed;
        println!("{name}: {} operations with {seeds} seeds", outcome.operations);
        results.operations += outcome.operations;
        results.scenarios.insert(name.to_owned(), Counts { seeds, outcome });
    }
    if work.failed.load(Ordering::Relaxed) {
        bail!("something differs from what it must be");
    }
    println!("{} operations: all as they should be", results.operations);
    if cli.json.is_none() && cli.page.is_none() {
        return Ok(());
    }
    for sabotage in Sabotage::ALL {
        let Some((seed, why)) = first_found(Some(sabotage), SEEDS) else {
            bail!("this was done wrong on purpose, and not found: {}", sabotage.words());
        };
        let said = why.lines().next().unwrap_or_default().chars().take(60).collect();
        results.on_purpose.push(Found { what: sabotage.words().to_owned(), seed, said });
    }
    if let Some(path) = &cli.json {
        write(path, &(serde_json::to_string_pretty(&results)? + "\n"))?;
    }
    match &cli.page {
        Some(path) => write(path, &page::render(&results)?),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belay-volume-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
