//! The differential soak.

mod drive;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, Signal, parse_signal, signal_name};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use crate::compare::{Oracle, Rules};
use crate::generate::{Generator, Names};
use crate::interrupt;
use crate::killer::{self, Plan, Toll};
use crate::pool::Pool;
use crate::report::{Blackout, Divergence, FixtureReport, Report};
use drive::{Driver, Mismatch};

/// What the operations are driven against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// A mount held by belay.
    Held,
    /// A bare mount: with `--kills 0` a check of the soak itself, with kills it must diverge.
    Bare,
}

/// Arguments of `soak`.
#[derive(Clone, Debug, clap::Args)]
pub struct SoakArgs {
    /// How long altogether, shared out evenly among the fixtures [default: 60s unless --kills or
    /// --ops is given]
    #[arg(long, value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    /// How many kills altogether, shared out evenly; 0 for none at all
    #[arg(long)]
    kills: Option<u64>,
    /// Operations per fixture, at least
    #[arg(long)]
    ops: Option<u64>,
    /// Seed of the operation sequence [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Daemons, by name, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = Kind::SIX)]
    fixtures: Vec<Kind>,
    /// How often each of them is soaked, with one seed after the other; a volume is checked each
    /// time
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Client processes
    #[arg(long, default_value_t = 2)]
    procs: usize,
    /// What to compare with
    #[arg(long, value_enum, default_value = "bare")]
    oracle: Oracle,
    /// What to compare
    #[arg(long, value_enum, default_value = "held")]
    subject: Subject,
    /// Signals to kill with, drawn at random
    #[arg(long, value_delimiter = ',', value_parser = parse_signal, default_value = "KILL,SEGV,ABRT")]
    signals: Vec<Signal>,
    /// Mean time between a successor's first answer and its death
    #[arg(long, value_parser = humantime::parse_duration, default_value = "50ms")]
    every: Duration,
    /// How long an operation may take before it counts as hanging
    #[arg(long, value_parser = humantime::parse_duration, default_value = "60s")]
    op_timeout: Duration,
    /// Write the results here, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the figures here, as a page in Markdown
    #[arg(long)]
    page: Option<PathBuf>,
    /// Where to make the fixtures [default: /dev/shm]
    #[arg(long)]
    workdir: Option<PathBuf>,
    /// Leave the fixtures' files behind
    #[arg(long)]
    keep: bool,
    /// Further argument for `belay run` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
    /// Further `-o` option for the daemons, or an argument such as `-s` (repeatable)
    #[arg(long = "daemon-opt", allow_hyphen_values = true)]
    daemon_opts: Vec<String>,
}

impl SoakArgs {
    /// A soak of one daemon.
    pub fn of_one(
        kind: Kind,
        seed: u64,
        kills: u64,
        limit: Duration,
        every: Duration,
        op_timeout: Duration,
    ) -> Self {
        Self {
            duration: Some(limit),
            kills: Some(kills),
            ops: None,
            seed: Some(seed),
            fixtures: vec![kind],
            times: 1,
            procs: 2,
            oracle: Oracle::Bare,
            subject: Subject::Held,
            signals: vec![Signal::KILL, Signal::SEGV, Signal::ABORT],
            every,
            op_timeout,
            json: None,
            page: None,
            workdir: None,
            keep: false,
            belay_args: Vec::new(),
            daemon_opts: Vec::new(),
        }
    }
}

/// Soaks the one daemon of `args`.
pub fn run_one(args: &SoakArgs, kind: Kind, interrupted: &AtomicBool) -> Result<FixtureReport> {
    Soak::new(args, kind, 0)?.run(interrupted).with_context(|| format!("soaking {kind}"))
}

/// Runs a soak; true if nothing diverged.
pub fn run(args: &SoakArgs) -> Result<bool> {
    let mut args = args.clone();
    let seed = *args.seed.get_or_insert_with(|| u64::from(rand::random::<u32>()));
    if args.duration.is_none() && args.ops.is_none() && args.kills.is_none_or(|kills| kills == 0) {
        args.duration = Some(Duration::from_secs(60));
    }
    println!("soak: seed {seed}, {} processes, oracle {:?}", args.procs, args.oracle);
    let interrupted = interrupt::flag()?;
    let mut reports = Vec::new();
    let times = |kind| (0..args.times.max(1)).map(move |time| (kind, time));
    for (index, (kind, time)) in args.fixtures.iter().flat_map(times).enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let soak = Soak::new(&args, *kind, index).map(|soak| soak.later(time));
        let report = soak.and_then(|soak| soak.run(&interrupted));
        let report = report.with_context(|| format!("soaking {kind}"))?;
        println!("{report}");
        if let Some(divergence) = &report.divergence {
            println!("{divergence}");
        }
        reports.push(report);
    }
    let report = Report::new(reports);
    println!(
        "total: {} operations, {} kills, {} divergences, {} errors",
        report.ops, report.kills, report.divergences, report.errors
    );
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    if let Some(path) = &args.page {
        report.write_page(path)?;
    }
    Ok(report.divergences == 0)
}

/// One fixture's soak.
struct Soak<'a> {
    args: &'a SoakArgs,
    kind: Kind,
    seed: u64,
    share: Duration,
    kills: Option<u64>,
    rules: Rules,
}

impl<'a> Soak<'a> {
    fn new(args: &'a SoakArgs, kind: Kind, index: usize) -> Result<Self> {
        let fixtures = u32::try_from(args.fixtures.len()).unwrap_or(1).max(1) * args.times.max(1);
        // The first fixtures get one more where it does not come out even.
        let share = |total: u64| {
            total / u64::from(fixtures) + u64::from((index as u64) < total % u64::from(fixtures))
        };
        Ok(Self {
            args,
            kind,
            seed: args.seed.context("the seed is chosen before")?,
            share: args.duration.unwrap_or(Duration::MAX) / fixtures,
            kills: args.kills.map(share),
            rules: Rules::new(kind, args.oracle),
        })
    }

    /// Its so many-th time.
    fn later(self, time: u32) -> Self {
        Self { seed: self.seed.wrapping_add(u64::from(time)), ..self }
    }

    fn replay(&self, ops: u64) -> String {
        let args = self.args;
        let signals: Vec<_> = args.signals.iter().map(|s| signal_name(*s)).collect();
        let value = |v: &dyn Fn() -> Option<String>| v().unwrap_or_default();
        let mut line = format!(
            "belay-chaos soak --seed {} --fixtures {} --procs {} --oracle {} --subject {} --signals {} --every {}",
            self.seed,
            self.kind,
            args.procs,
            value(&|| args.oracle.to_possible_value().map(|v| v.get_name().to_owned())),
            value(&|| args.subject.to_possible_value().map(|v| v.get_name().to_owned())),
            signals.join(","),
            humantime::format_duration(args.every),
        );
        line += &format!(" --ops {}", ops + 1);
        if args.kills == Some(0) {
            line += " --kills 0";
        }
        for arg in &args.belay_args {
            line += &format!(" --belay-arg={arg}");
        }
        for option in &args.daemon_opts {
            line += &format!(" --daemon-opt={option}");
        }
        line
    }

    fn run(&self, interrupted: &AtomicBool) -> Result<FixtureReport> {
        let args = self.args;
        let options = FixtureOptions {
            workdir: args.workdir.clone(),
            daemon_opts: args.daemon_opts.clone(),
            repeatable: true,
            keep_files: args.keep,
            ..FixtureOptions::default()
        };
        let mode = match args.subject {
            Subject::Held => {
                let mut words = args.belay_args.clone();
                // Its processes are killed whatever they do: that a request was there several times
                // in a row is no fault of it.
                words.extend(self.kind.is_volume().then(|| "--poison-after=0".to_owned()));
                killer::held(&words)
            }
            Subject::Bare => Mode::Bare,
        };
        let oracle_kind = if args.oracle == Oracle::Dir { Kind::Dir } else { self.kind };
        let oracle = Fixture::start(oracle_kind, &Mode::Bare, &options)?;
        let subject = Fixture::start(self.kind, &mode, &options)?;
        let pool =
            |name, fixture: &Fixture| Pool::start(name, fixture, args.procs, args.op_timeout);
        let mut oracle_pool = pool("the oracle", &oracle)?;
        let mut subject_pool = pool("the subject", &subject)?;

        let names = Names::read(oracle.root()).context("looking at what there is")?;
        let plan = Plan {
            seed: self.seed,
            every: args.every,
            start: subject.launch_time(),
            signals: args.signals.clone(),
            limit: self.kills,
            progress: Some(subject_pool.progress()),
        };
        let toll = Toll::default();
        let began = Instant::now();
        let mut bare = vec![oracle.root()];
        if !subject.is_held() {
            bare.push(subject.root());
        }
        let mut driver = Driver::new(self.rules, bare, &mut oracle_pool, &mut subject_pool);
        let found = std::thread::scope(|scope| {
            let killer = (self.kills != Some(0) && self.kind != Kind::Dir)
                .then(|| scope.spawn(|| killer::run(&subject, &plan, &toll)));
            let found = self.drive(&mut driver, &toll, interrupted, began, &names);
            toll.stop.ask();
            if let Some(killer) = killer {
                let _ = killer.join();
            }
            found
        });
        let (ops, errors, slowest) = (driver.ops(), driver.errors(), driver.slowest());
        let (refused, void) = (driver.refused(), driver.void());
        let found = match found {
            // Whether it is a lasting one shows in the trees.
            Some(mut mismatch) => {
                let lasting = drive::trees(&oracle, &subject, ops);
                if let Ok(Some(lasting)) = lasting {
                    mismatch.subject += &format!("; {}: {}", lasting.what, lasting.subject);
                }
                Some(mismatch)
            }
            None => drive::trees(&oracle, &subject, ops)?,
        };
        let found = found.or_else(|| {
            toll.failure().map(|why| Mismatch::broken(ops, "killing the daemon", &why))
        });
        let status = if subject.is_held() { subject.belay_status().ok() } else { None };
        let words = if found.is_some() { subject.last_words() } else { String::new() };
        let divergence = found.map(|m| Divergence {
            index: m.index,
            worker: m.worker,
            what: m.what,
            oracle: m.oracle,
            subject: m.subject + &words,
            before: m.before,
            replay: self.replay(m.index),
        });
        drop((oracle_pool, subject_pool));
        if divergence.is_none() && (subject.is_held() || toll.kills() == 0) {
            subject.stop().context("after the soak")?;
            oracle.stop().context("after the soak")?;
        }
        Ok(FixtureReport {
            fixture: self.kind,
            oracle: args.oracle,
            seed: self.seed,
            processes: args.procs,
            ops,
            refused,
            void,
            kills: toll.kills(),
            divergences: u64::from(divergence.is_some()),
            errors,
            seconds: began.elapsed().as_secs_f64(),
            blackout: status.as_ref().map(Blackout::of).unwrap_or_default(),
            slowest_op_us: slowest,
            divergence,
            status,
        })
    }

    /// Round after round, until it is enough or something differs.
    fn drive(
        &self,
        driver: &mut Driver<'_>,
        toll: &Toll,
        interrupted: &AtomicBool,
        began: Instant,
        names: &Names,
    ) -> Option<Mismatch> {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {prefix:15} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_prefix(self.kind.name());
        let mut scope = Rules::scope(self.kind, self.args.oracle);
        scope.write_only = !self.args.daemon_opts.iter().any(|o| o == "writeback");
        let mut generator = Generator::new(self.seed, self.args.procs, scope, names);
        let mut mismatch = driver.round(&generator.prologue());
        while mismatch.is_none() {
            let enough_ops = self.args.ops.is_some_and(|ops| driver.ops() >= ops);
            let enough_kills = self.kills.is_some_and(|kills| kills > 0 && toll.kills() >= kills);
            let enough_time = began.elapsed() >= self.share;
            if enough_ops || enough_kills || enough_time || interrupted.load(Ordering::Relaxed) {
                break;
            }
            if let Some(why) = toll.failure() {
                mismatch = Some(Mismatch::broken(driver.ops(), "killing the daemon", &why));
                break;
            }
            mismatch = driver.round(&generator.round());
            bar.set_message(format!("{} operations, {} kills", driver.ops(), toll.kills()));
            bar.tick();
        }
        toll.stop.ask();
        bar.finish_and_clear();
        mismatch.or_else(|| driver.round(&generator.epilogue()))
    }
}
