//! Crashes at random moments of real programs' work: the paper's Table 5.
//!
//! For each fixture and workload: the work is done on a bare mount that nobody disturbs, which
//! gives the right outcome and how long it takes. Then it is done on a held mount whose daemon is
//! killed at random moments, again and again until there were enough crashes, each time on a fresh
//! fixture. A crash is survived if the work that it fell into came to its right end: no program
//! failed, and what the daemon has afterwards is what the undisturbed run left. As a control, the
//! bare daemon is killed once at the same work, which must not go unnoticed.

mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use belay_fixtures::{
    Fixture, FixtureOptions, Kind, Mode, Signal, find_number, parse_signal, signal_name,
};
use belay_workloads::{Name, Outcome, Scale, Watch, Workload};

use crate::interrupt;
use crate::killer::{self, Plan, Toll};
use crate::report::Blackout;
use table::{Cell, Run, Table};

/// So many runs in a row without a crash mean that the work is too short to be hit.
const MISSES: usize = 20;
/// So many differences of a run are told.
const TOLD: usize = 10;

/// Arguments of `study random`.
#[derive(Clone, Debug, clap::Args)]
pub struct RandomArgs {
    /// Daemons, by name, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "ntfs-3g,sshfs,avfs")]
    fixtures: Vec<Kind>,
    /// Workloads, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    workloads: Vec<Name>,
    /// Crashes for each fixture and workload
    #[arg(long, default_value_t = 100)]
    crashes: u64,
    /// How much work
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// Seed of the moments of the crashes, in a cell's first run; the next runs count on from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seed of the work
    #[arg(long, default_value_t = 1)]
    data_seed: u64,
    /// Signals to crash the daemon with, drawn at random
    #[arg(long, value_delimiter = ',', value_parser = parse_signal, default_value = "SEGV,KILL")]
    signals: Vec<Signal>,
    /// Jobs of `make`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// How belay settles open requests
    #[arg(long, default_value = "auto")]
    policy: String,
    /// Wrong runs after which a cell is given up
    #[arg(long, default_value_t = 3)]
    patience: usize,
    /// Leave the control out: one crash of the bare daemon
    #[arg(long)]
    no_control: bool,
    /// Where to write random.json and random.md
    #[arg(long, default_value = "target/study", value_name = "DIR")]
    out: PathBuf,
    /// Where to make the fixtures [default: /dev/shm]
    #[arg(long)]
    workdir: Option<PathBuf>,
    /// Further argument for `belay run` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
}

/// Runs the study; true if every crash was survived, and no control was.
pub fn run(args: &RandomArgs) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    let names = if args.workloads.is_empty() { Name::ALL.to_vec() } else { args.workloads.clone() };
    let workloads: Vec<Workload> = names
        .iter()
        .map(|name| {
            Workload::new(*name, args.scale, args.data_seed, args.jobs)
                .with_context(|| format!("making {name} ready"))
        })
        .collect::<Result<_>>()?;
    let mut table = Table::new(args.scale, args.crashes, args.seed, &args.policy);
    for kind in &args.fixtures {
        for workload in &workloads {
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted; what is done so far is in {}", args.out.display());
            }
            let study = Study { args, kind: *kind, workload, interrupted: &interrupted };
            let cell = study.cell().with_context(|| format!("{} on {kind}", workload.name()))?;
            println!("{cell}");
            table.cells.push(cell);
            table.write(&args.out)?;
        }
    }
    println!("\n{}", table.markdown());
    println!("written to {}", args.out.display());
    Ok(table.cells.iter().all(Cell::is_good))
}

/// One fixture with one workload.
struct Study<'a> {
    args: &'a RandomArgs,
    kind: Kind,
    workload: &'a Workload,
    interrupted: &'a AtomicBool,
}

/// What the undisturbed run gave.
struct Oracle {
    outcome: Outcome,
    took: Duration,
}

impl Study<'_> {
    fn options(&self) -> FixtureOptions {
        FixtureOptions {
            workdir: self.args.workdir.clone(),
            image_mib: self.workload.image_mib(),
            ..FixtureOptions::default()
        }
    }

    fn cell(&self) -> Result<Cell> {
        let oracle = self.undisturbed().context("the undisturbed run on the bare mount")?;
        let mut cell = Cell::new(self.kind, self.workload, oracle.took);
        if !self.args.no_control {
            let control = self.under_fire(&oracle, Mode::Bare, 1, self.args.seed)?;
            cell.control = Some(control);
        }
        let mut misses = 0;
        while cell.injected() < self.args.crashes && cell.wrong_runs() < self.args.patience {
            let left = self.args.crashes - cell.injected();
            let seed = self.args.seed.wrapping_add(cell.runs.len() as u64);
            let mut belay_args = vec![format!("--policy={}", self.args.policy)];
            belay_args.extend(self.args.belay_args.iter().cloned());
            let run = self.under_fire(&oracle, killer::held(&belay_args), left, seed)?;
            // What was cut short came to no end, right or wrong.
            if self.interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            println!("  {} on {}: {run}", self.workload.name(), self.kind);
            misses = if run.crashes == 0 { misses + 1 } else { 0 };
            cell.runs.push(run);
            if misses == MISSES {
                bail!("{MISSES} runs in a row ended before a crash: take a larger --scale");
            }
        }
        Ok(cell)
    }

    fn undisturbed(&self) -> Result<Oracle> {
        let fixture = Fixture::start(self.kind, &Mode::Bare, &self.options())?;
        self.workload.setup(fixture.root())?;
        let stop = || self.interrupted.load(Ordering::Relaxed);
        let begin = Instant::now();
        let limit = Duration::from_secs(3 * 3600);
        let done =
            self.workload.work(fixture.root(), &Watch { deadline: begin + limit, stop: &stop })?;
        let took = begin.elapsed();
        let outcome = self.workload.look(fixture.root(), &done)?;
        self.workload.verify(&outcome)?;
        fixture.stop()?;
        Ok(Oracle { outcome, took })
    }

    /// One run, with up to so many crashes spread over it.
    fn under_fire(&self, oracle: &Oracle, mode: Mode, crashes: u64, seed: u64) -> Result<Run> {
        let fixture = Fixture::start(self.kind, &mode, &self.options())?;
        self.workload.setup(fixture.root())?;
        let toll = Toll::default();
        let spread = oracle.took / u32::try_from(crashes + 1).unwrap_or(u32::MAX);
        let plan = Plan {
            seed,
            every: spread,
            start: Duration::ZERO,
            signals: self.args.signals.clone(),
            limit: Some(crashes),
            progress: None,
        };
        let stop = || self.interrupted.load(Ordering::Relaxed) || toll.failure().is_some();
        let begin = Instant::now();
        // Each crash may take its time; beyond that the work hangs.
        let deadline = begin + oracle.took * 10 + Duration::from_secs(120 + 2 * crashes);
        let worked = std::thread::scope(|scope| {
            scope.spawn(|| killer::run(&fixture, &plan, &toll));
            let worked = self.workload.work(fixture.root(), &Watch { deadline, stop: &stop });
            toll.stop.ask();
            worked
        });
        let took = begin.elapsed();
        // A killed bare mount gives no more than errors, and asking it again would only add more.
        let compared = worked.and_then(|done| {
            let outcome = self.workload.look(fixture.root(), &done)?;
            Ok(oracle.outcome.differences(&outcome))
        });
        let mut wrong = match compared {
            Ok(differences) => differences,
            Err(error) => vec![format!("{error:#}")],
        };
        wrong.extend(toll.failure().map(|why| format!("the killer gave up: {why}")));
        let status = if fixture.is_held() { fixture.belay_status().ok() } else { None };
        let words = fixture.last_words();
        if wrong.is_empty() {
            wrong.extend(fixture.stop().err().map(|error| format!("{error:#}")));
        } else {
            // A mount that nobody serves has to be taken away by force.
            drop(fixture);
        }
        let differences = wrong.len();
        wrong.truncate(TOLD);
        let number = |path: &[&str]| status.as_ref().and_then(|status| find_number(status, path));
        Ok(Run {
            seed,
            crashes: toll.kills(),
            seconds: took.as_secs_f64(),
            differences,
            replay: (!wrong.is_empty() && mode != Mode::Bare).then(|| self.replay(seed, crashes)),
            last_words: if wrong.is_empty() { String::new() } else { words },
            wrong,
            counted_by_belay: number(&["crashes"]),
            requests_failed: number(&["requests", "failed"]),
            blackout: status.as_ref().map(Blackout::of).unwrap_or_default(),
        })
    }

    fn replay(&self, seed: u64, crashes: u64) -> String {
        let args = self.args;
        let signals: Vec<_> = args.signals.iter().map(|signal| signal_name(*signal)).collect();
        let more: String =
            args.belay_args.iter().map(|arg| format!(" '--belay-arg={arg}'")).collect();
        format!(
            "belay-chaos study random --fixtures {} --workloads {} --scale {} --crashes {crashes} --seed {seed} \
             --data-seed {} --signals {} --jobs {} --policy {} --no-control{more}",
            self.kind,
            self.workload.name(),
            args.scale,
            args.data_seed,
            signals.join(","),
            args.jobs,
            args.policy,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_a_command_line_that_means_the_same() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: RandomArgs,
        }
        let parse = |line: &str| {
            let words = line.strip_prefix("belay-chaos study random").unwrap().split_whitespace();
            <Line as clap::Parser>::try_parse_from(std::iter::once("x").chain(words)).unwrap().args
        };
        let args = parse("belay-chaos study random --signals SEGV --scale tiny --data-seed 9");
        let workload = Workload::new(Name::Postmark, Scale::Tiny, 9, 2).unwrap();
        let study = Study {
            args: &args,
            kind: Kind::Sshfs,
            workload: &workload,
            interrupted: &AtomicBool::new(false),
        };
        let again = parse(&study.replay(77, 13));
        assert_eq!((again.seed, again.crashes, again.data_seed), (77, 13, 9));
        assert_eq!((again.fixtures, again.workloads), (vec![Kind::Sshfs], vec![Name::Postmark]));
        assert_eq!((again.signals, again.scale), (args.signals.clone(), args.scale));
    }
}
