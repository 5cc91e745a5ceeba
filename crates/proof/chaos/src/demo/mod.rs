//! The demo: real work on a real daemon that is killed again and again.

mod work;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Mode, Signal, parse_signal};
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt;
use crate::killer::{self, Plan, Toll};
use crate::report::Blackout;

/// Arguments of `demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// How often to kill the daemon
    #[arg(long, default_value_t = 50)]
    kills: u64,
    /// Size of the file to sort, in MB
    #[arg(long, default_value_t = 100)]
    size_mb: u64,
    /// The daemon
    #[arg(long, default_value_t = Kind::Sshfs)]
    fixture: Kind,
    /// Mean time between a successor's start and its death
    #[arg(long, value_parser = humantime::parse_duration, default_value = "250ms")]
    every: Duration,
    /// Signals to kill with
    #[arg(long, value_delimiter = ',', value_parser = parse_signal, default_value = "KILL,SEGV,ABRT")]
    signals: Vec<Signal>,
    /// Run without belay (and without kills, or see what becomes of it)
    #[arg(long)]
    bare: bool,
    /// Seed of the data and of the kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to make the mounts [default: /dev/shm]
    #[arg(long)]
    workdir: Option<PathBuf>,
    /// Further argument for `belay run` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
}

/// What the three jobs share.
struct Floor<'a> {
    toll: &'a Toll,
    /// How many kills it takes; the jobs go on until then.
    kills: u64,
    interrupted: &'a AtomicBool,
    sorts: AtomicU64,
    tars: AtomicU64,
    lines: AtomicU64,
    /// What went wrong, and what came out otherwise than on a plain directory.
    errors: Mutex<Vec<String>>,
    differences: Mutex<Vec<String>>,
}

impl Floor<'_> {
    fn over(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
            || self.toll.failure().is_some()
            || self.toll.kills() >= self.kills
    }

    fn error(&self, job: &str, error: &anyhow::Error) {
        note(&self.errors, format!("{job}: {error:#}"));
    }

    /// Does a job until it is over, at least once; `expected` is what it gave on a plain directory.
    fn repeat<T: PartialEq>(
        &self,
        job: &str,
        count: &AtomicU64,
        expected: &T,
        work: impl Fn() -> Result<T>,
    ) {
        loop {
            match work() {
                Ok(result) if result == *expected => {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok(_) => {
                    note(&self.differences, format!("{job}: not the same as on a plain directory"))
                }
                Err(error) => {
                    // A dead mount gives errors without end; one is enough.
                    self.error(job, &error);
                    return;
                }
            }
            if self.over() {
                return;
            }
        }
    }
}

fn note(list: &Mutex<Vec<String>>, line: String) {
    list.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(line);
}

fn taken(list: Mutex<Vec<String>>) -> Vec<String> {
    list.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the demo; true if nobody noticed anything.
pub fn run(args: &DemoArgs) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    let options = FixtureOptions { workdir: args.workdir.clone(), ..FixtureOptions::default() };
    let kills = if args.bare && args.fixture == Kind::Dir { 0 } else { args.kills };

    println!("first on a plain directory: sort {} MB, pack and unpack a tree ...", args.size_mb);
    let plain = Fixture::start(Kind::Dir, &Mode::Bare, &options)?;
    work::prepare(plain.root(), args.size_mb, args.seed)
        .context("preparing the plain directory")?;
    let sorted = work::sort(plain.root()).context("sorting on a plain directory")?;
    let unpacked = work::tar(plain.root()).context("packing on a plain directory")?;

    let mode = if args.bare { Mode::Bare } else { killer::held(&args.belay_args) };
    let fixture = Fixture::start(args.fixture, &mode, &options)?;
    let how = if args.bare { "without belay" } else { "under belay" };
    println!(
        "now on {} {how}, mounted on {}: killed {kills} times at work",
        args.fixture,
        fixture.mountpoint().display()
    );
    let toll = Toll::default();
    let plan = Plan {
        seed: args.seed,
        every: args.every,
        start: Duration::ZERO,
        signals: args.signals.clone(),
        limit: Some(kills),
        progress: None,
    };
    let floor = Floor {
        toll: &toll,
        kills,
        interrupted: &interrupted,
        sorts: AtomicU64::new(0),
        tars: AtomicU64::new(0),
        lines: AtomicU64::new(0),
        errors: Mutex::default(),
        differences: Mutex::default(),
    };
    let began = Instant::now();
    let bar = bar(kills);
    std::thread::scope(|scope| {
        if kills > 0 {
            scope.spawn(|| killer::run(&fixture, &plan, &toll));
        }
        // Also the input is written to the mount, under fire.
        let busy = scope.spawn(|| {
            if let Err(error) = work::prepare(fixture.root(), args.size_mb, args.seed) {
                return floor.error("writing the input", &error);
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    floor.repeat("sort", &floor.sorts, &sorted, || work::sort(fixture.root()))
                });
                scope.spawn(|| {
                    floor.repeat("tar", &floor.tars, &unpacked, || work::tar(fixture.root()))
                });
            });
        });
        let done = AtomicBool::new(false);
        std::thread::scope(|inner| {
            inner.spawn(|| {
                let log = fixture.root().join("log");
                if let Err(error) = work::append(&log, &floor.lines, &done) {
                    floor.error("append", &error);
                }
            });
            while !busy.is_finished() {
                bar.set_position(toll.kills());
                bar.set_message(progress(&floor));
                std::thread::sleep(Duration::from_millis(50));
            }
            done.store(true, Ordering::Relaxed);
        });
        toll.stop.ask();
    });
    bar.finish_and_clear();
    let seconds = began.elapsed().as_secs_f64();
    let lines = floor.lines.load(Ordering::Relaxed);
    match work::appended(&fixture.root().join("log"), lines) {
        Ok(true) => {}
        Ok(false) => note(&floor.differences, "append: the file is not what was appended".into()),
        Err(error) => floor.error("reading the appended file", &error),
    }
    let status = if fixture.is_held() { fixture.belay_status().ok() } else { None };
    let words = fixture.last_words();
    let done = progress(&floor);
    let (errors, mut differences) = (taken(floor.errors), taken(floor.differences));
    differences.extend(toll.failure().map(|why| format!("the killer gave up: {why}")));
    println!("crashes:     {} in {seconds:.1} s", toll.kills());
    println!("work:        {done}");
    println!("errors seen: {}", errors.len());
    println!("differences: {}", differences.len());
    if let Some(status) = &status {
        println!("blackout:    {} (median / p99 / max)", Blackout::of(status));
    }
    for line in errors.iter().chain(&differences) {
        println!("  {line}");
    }
    let good = errors.is_empty() && differences.is_empty();
    if good {
        fixture.stop()?;
    } else {
        println!("{}", words.trim_start_matches("; "));
    }
    Ok(good && (toll.kills() >= kills || interrupted.load(Ordering::Relaxed)))
}

fn bar(kills: u64) -> ProgressBar {
    let bar = ProgressBar::new(kills);
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:25}] {pos}/{len} crashes, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

fn progress(floor: &Floor<'_>) -> String {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    format!(
        "{} sorts, {} tar round trips, {} lines appended",
        get(&floor.sorts),
        get(&floor.tars),
        get(&floor.lines)
    )
}
