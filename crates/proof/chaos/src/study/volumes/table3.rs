//! Faults in the POSIX namespace module while programs work on its volume: Table III of the
//! namespace transactions' paper (V-B).
//!
//! The module is killed at random instants ("kill"), or instructions of its code are replaced by
//! ones that trap ("swifi"). Both are fail-stop, as the paper's failure model wants it. Bytes of
//! the code that are overwritten at random are not: they are counted apart.

mod hunt;
mod table;

use super::code::Code;
use super::loop_of_work::{Oracle, Run};
use crate::interrupt::{self, Stop};
use crate::killer;
use crate::report::Blackout;
use crate::target;
use anyhow::{Context, Result, bail};
use belay_fixtures::{Belay, Fixture, FixtureOptions, Kind, Signal, parse_signal, signal_name};
use belay_workloads::{Name, Scale, Workload};
use clap::ValueEnum;
use hunt::Hunt;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
pub use table::Table;
use table::{Cell, Session};

/// Words in the symbols of the module's functions.
const FUNCTIONS: [&str; 7] = [
    "belay_posix",
    "belay_cache",
    "belay_object",
    "belay_channel",
    "belay_wire",
    "belay_stack9namespace",
    "belay_stack7serving",
];

/// How faults are injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Injection {
    /// The process is killed.
    Kill,
    /// Instructions are replaced by ones that trap.
    Swifi,
    /// Bytes of the code are overwritten.
    Overwrite,
}

/// A workload of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Row {
    /// PostMark with verification.
    Postmark,
    /// A build of OpenSSH, with verification.
    Openssh,
}

/// Arguments of `study table3`.
#[derive(Clone, Debug, clap::Args)]
pub struct Table3Args {
    /// Injections of each kind, for each workload
    #[arg(long, default_value_t = 1500)]
    injections: u64,
    /// The same for overwritten bytes, which the paper has not
    #[arg(long, default_value_t = 200)]
    overwrites: u64,
    /// Workloads
    #[arg(long, value_enum, value_delimiter = ',', default_value = "postmark,openssh")]
    rows: Vec<Row>,
    /// Kinds of injections
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kill,swifi,overwrite")]
    columns: Vec<Injection>,
    /// Instructions, or places of the code, that are changed at once
    #[arg(long, default_value_t = 100)]
    faults: usize,
    /// Mean time between a successor's first answer and the next injection
    #[arg(long, value_parser = humantime::parse_duration, default_value = "20ms")]
    every: Duration,
    /// Signals to kill with, drawn at random
    #[arg(long, value_delimiter = ',', value_parser = parse_signal, default_value = "KILL,SEGV")]
    signals: Vec<Signal>,
    /// How much work
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// Jobs of `make`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Seed of work and injections [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Wrong runs after which a cell is given up
    #[arg(long, default_value_t = 3)]
    patience: usize,
    /// Where to write table3.json and table3.md
    #[arg(long, default_value = "target/study", value_name = "DIR")]
    out: PathBuf,
    /// Where to make the fixtures [default: /dev/shm]
    #[arg(long)]
    workdir: Option<PathBuf>,
    /// Further argument for `belay volume mount` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
}

/// Runs the study; true if each fail-stop fault was survived.
pub fn run(args: &Table3Args) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("table3: seed {seed}");
    let program = PathBuf::from(Belay::find()?.command().get_program());
    let code = Code::of(&program, &FUNCTIONS)?;
    println!(
        "the module has {} functions with {} instructions in {} bytes",
        code.functions(),
        code.instructions(),
        code.size()
    );
    let mut table = Table {
        version: 1,
        seed,
        scale: args.scale,
        faults: args.faults,
        every_ms: u64::try_from(args.every.as_millis()).unwrap_or(u64::MAX),
        functions: code.functions(),
        instructions: code.instructions(),
        code_bytes: code.size(),
        cells: Vec::new(),
    };
    for row in &args.rows {
        let name = match row {
            Row::Postmark => Name::Verified,
            Row::Openssh => Name::Openssh,
        };
        let workload = Workload::new(name, args.scale, seed, args.jobs)?;
        let oracle = Oracle::new(&workload, args.workdir.clone(), &interrupted);
        let oracle = oracle.with_context(|| format!("the undisturbed run of {name}"))?;
        for injection in &args.columns {
            let study = Study {
                args,
                seed,
                code: &code,
                workload: &workload,
                oracle: &oracle,
                injection: *injection,
                interrupted: &interrupted,
            };
            let cell = study.cell().with_context(|| format!("{injection:?} in {name}"))?;
            println!("{cell}");
            table.cells.push(cell);
            table.write(&args.out)?;
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted; what is done so far is in {}", args.out.display());
            }
        }
    }
    println!("written to {}", args.out.display());
    Ok(table.cells.iter().all(Cell::is_good))
}

/// One workload with one kind of injection.
struct Study<'a> {
    args: &'a Table3Args,
    seed: u64,
    code: &'a Code,
    workload: &'a Workload,
    oracle: &'a Oracle,
    injection: Injection,
    interrupted: &'a AtomicBool,
}

impl Study<'_> {
    fn cell(&self) -> Result<Cell> {
        let (wanted, patience) = match self.injection {
            // These are expected to be noticed now and then.
            Injection::Overwrite => (self.args.overwrites, usize::MAX),
            _ => (self.args.injections, self.args.patience),
        };
        let mut cell = Cell {
            workload: self.workload.name(),
            parameters: self.workload.describe(),
            undisturbed_seconds: self.oracle.took.as_secs_f64(),
            injection: self.injection,
            sessions: Vec::new(),
        };
        while cell.injected() < wanted
            && cell.wrong() < patience
            && !self.interrupted.load(Ordering::Relaxed)
        {
            let seed = self.seed.wrapping_add(cell.sessions.len() as u64);
            let session = self.session(wanted - cell.injected(), seed)?;
            println!("  {}, volume {}: {session}", self.workload.name(), cell.sessions.len() + 1);
            cell.sessions.push(session);
        }
        Ok(cell)
    }

    /// Works on a fresh volume, until there were so many injections or something is wrong.
    fn session(&self, injections: u64, seed: u64) -> Result<Session> {
        let options = FixtureOptions {
            workdir: self.args.workdir.clone(),
            image_mib: self.workload.image_mib(),
            ..FixtureOptions::default()
        };
        let mut words = self.args.belay_args.clone();
        // That a request was there each time the module died is no fault of it.
        words.push("--poison-after=0".to_owned());
        // A module whose code is wrong may hang.
        if self.injection == Injection::Overwrite {
            words.push(format!("--hang-timeout={}s", hunt::HANG.as_secs()));
            // What it has left may kill each of its successors.
            words.push("--max-crashes=20".to_owned());
        }
        let fixture = Fixture::start(Kind::Volume, &killer::held(&words), &options)?;
        let stop = Stop::default();
        let hunt = Hunt {
            fixture: &fixture,
            code: self.code,
            injection: self.injection,
            faults: self.args.faults,
            every: self.args.every,
            signals: &self.args.signals,
            limit: injections,
            stop: &stop,
        };
        let begin = Instant::now();
        let mut last = Duration::ZERO;
        let (runs, (shots, failed)) = std::thread::scope(|scope| {
            let hunt = scope.spawn(|| hunt.run(seed, begin));
            let each = |run: &Run| {
                last = begin.elapsed().saturating_sub(Duration::from_secs_f64(run.seconds));
            };
            let runs = self.oracle.work(self.workload, &fixture, &stop, self.interrupted, each);
            stop.ask();
            let hunted =
                hunt.join().unwrap_or_else(|_| (Vec::new(), Some("it has panicked".into())));
            (runs, hunted)
        });
        let mut wrong: Vec<String> = runs.iter().flat_map(|run| run.wrong.clone()).collect();
        wrong.extend(failed.map(|why| format!("injecting: {why}")));
        let status = target::status(&fixture).ok();
        let words = if wrong.is_empty() { String::new() } else { fixture.last_words() };
        let damage = fixture.stop().err().map(|why| format!("{why:#}"));
        let is_wrong = !wrong.is_empty() || damage.is_some();
        Ok(Session {
            seed,
            seconds: begin.elapsed().as_secs_f64(),
            runs: runs.len() as u64,
            wrong,
            damage,
            last_words: words,
            replay: is_wrong.then(|| self.replay(seed)),
            last_run_s: last.as_secs_f64(),
            blackout: status.as_ref().map(Blackout::of).unwrap_or_default(),
            shots,
        })
    }

    fn replay(&self, seed: u64) -> String {
        let args = self.args;
        let value = |name: Option<clap::builder::PossibleValue>| {
            name.map(|name| name.get_name().to_owned()).unwrap_or_default()
        };
        let row = if self.workload.name() == Name::Verified { Row::Postmark } else { Row::Openssh };
        let signals: Vec<_> = args.signals.iter().map(|signal| signal_name(*signal)).collect();
        format!(
            "belay-chaos study table3 --rows {} --columns {} --scale {} --seed {seed} --every {}ms --faults {} --signals {} --injections {} --overwrites {}",
            value(row.to_possible_value()),
            value(self.injection.to_possible_value()),
            args.scale,
            args.every.as_millis(),
            args.faults,
            signals.join(","),
            args.injections,
            args.overwrites,
        )
    }
}
