//! Loris's kill test (VII-B): OpenSSH is built in a loop on a volume, with a checkpoint every five
//! seconds, and the processes of its lower layers are killed again and again, and the others now
//! and then. Each build must come to its right end.
//!
//! How long the lower layers do not serve is what they say themselves (`belay status`); when they
//! were killed is known here.

mod events;
mod table;

use super::loop_of_work::{Oracle, Run};
use super::probe::{self, Doing, Seen};
use crate::interrupt::{self, Stop};
use crate::killer;
use crate::report::Blackout;
use crate::target::{self, Target};
use anyhow::{Context, Result, bail};
use belay_fixtures::{Fixture, FixtureOptions, Kind, Signal, parse_signal, signal_name};
use belay_stack::memory::{self, Memory};
use belay_stack::{Place, report};
use belay_workloads::{Name, Scale, Workload};
use clap::ValueEnum;
use events::Events;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use table::Kill;
pub use table::Results;

/// Of keeper and supervisor one must live. Who has just been started in the place of one has not
/// taken over yet.
const TRUCE: Duration = Duration::from_secs(2);
/// A checkpoint is waited for, for no longer than this, so that a kill falls into it.
const CHECKPOINT: Duration = Duration::from_secs(8);
/// How often it is looked whether one is under way: nothing tells.
const LOOK: Duration = Duration::from_millis(1);
/// How long into a checkpoint such a kill can be.
const INTO: Duration = Duration::from_millis(100);
/// No pause is looked for later than this after a kill.
const LATEST: Duration = Duration::from_secs(10);

/// Arguments of `study loris`.
#[derive(Clone, Debug, clap::Args)]
pub struct LorisArgs {
    /// How many kills of the lower layers; those of other processes come on top
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// Mean time between two kills
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1s")]
    every: Duration,
    /// What is killed, drawn with equal chances: what is named twice has twice the chance
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "store,store,store,cache,cache,namespace,supervisor,keeper"
    )]
    targets: Vec<Target>,
    /// The share of kills that wait until a checkpoint is under way
    #[arg(long, default_value_t = 0.25)]
    aimed: f64,
    /// Signals to kill with, drawn at random
    #[arg(long, value_delimiter = ',', value_parser = parse_signal, default_value = "KILL,SEGV,ABRT")]
    signals: Vec<Signal>,
    /// Stores of the volume
    #[arg(long, default_value_t = 2)]
    stores: usize,
    /// How much work; `tiny`: a small generated program in place of OpenSSH
    #[arg(long, value_enum, default_value_t = Scale::Small)]
    scale: Scale,
    /// Jobs of `make`
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// Seed of the kills [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Where to write loris.json and loris.md
    #[arg(long, default_value = "target/study", value_name = "DIR")]
    out: PathBuf,
    /// Where to make the fixture: on a real disk, as kills fall into its flushes then
    #[arg(long, default_value = "/var/tmp")]
    workdir: PathBuf,
    /// Further argument for `belay volume mount` (repeatable)
    #[arg(long = "belay-arg", allow_hyphen_values = true)]
    belay_args: Vec<String>,
    /// Succeed if every build is right, however long recoveries take
    #[arg(long)]
    any_time: bool,
}

/// Runs the test; true if each build was right, and recovery was fast enough.
pub fn run(args: &LorisArgs) -> Result<bool> {
    let interrupted = interrupt::flag()?;
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("loris: seed {seed}");
    let workload = Workload::new(Name::Openssh, args.scale, seed, args.jobs)?;
    let oracle = Oracle::new(&workload, Some(args.workdir.clone()), &interrupted);
    let oracle = oracle.context("the undisturbed build")?;
    let test = Test { args, seed, interrupted: &interrupted };
    let results = test.under_fire(&workload, &oracle)?;
    results.write(&args.out)?;
    println!("{}", results.summary());
    println!("written to {}", args.out.display());
    Ok(results.is_right() && (args.any_time || results.is_fast()))
}

struct Test<'a> {
    args: &'a LorisArgs,
    seed: u64,
    interrupted: &'a AtomicBool,
}

/// Sets a flag when it goes, however that comes about.
struct Ends<'a>(&'a Stop);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// A kill.
struct Shot {
    at: Instant,
    at_us: u64,
    target: Target,
    aimed: bool,
    signal: Signal,
}

impl Test<'_> {
    fn options(&self, workload: &Workload) -> FixtureOptions {
        FixtureOptions {
            workdir: Some(self.args.workdir.clone()),
            image_mib: workload.image_mib(),
            stores: self.args.stores,
            ..FixtureOptions::default()
        }
    }

    fn under_fire(&self, workload: &Workload, oracle: &Oracle) -> Result<Results> {
        let mut words = self.args.belay_args.clone();
        // That a request was there each time somebody was killed is no fault of it.
        words.push("--poison-after=0".to_owned());
        let fixture = Fixture::start(Kind::Volume, &killer::held(&words), &self.options(workload))?;
        let (stop, over) = (Stop::default(), Stop::default());
        let shots = Mutex::new(Vec::new());
        let begin = Instant::now();
        let each = |run: &Run| {
            let kills = lock(&shots).len();
            println!("  a build in {:.1} s, {kills} kills so far", run.seconds);
        };
        let (runs, hunted, names, syncs) = std::thread::scope(|scope| {
            let hunt = scope.spawn(|| {
                let _ends = Ends(&stop);
                self.hunt(&fixture, &stop, &shots)
            });
            let names = scope.spawn(|| probe::run(fixture.root(), Doing::Names, &over));
            let syncs = scope.spawn(|| probe::run(fixture.root(), Doing::Syncs, &over));
            let runs = oracle.work(workload, &fixture, &stop, self.interrupted, each);
            stop.ask();
            let hunted = joined(hunt.join());
            over.ask();
            (runs, hunted, joined(names.join()), joined(syncs.join()))
        });
        let mut wrong: Vec<String> = runs.iter().flat_map(|run| run.wrong.clone()).collect();
        let mut events = taken(hunted, "killing", &mut wrong);
        let names = taken(names, "an application", &mut wrong);
        let syncs = taken(syncs, "an application", &mut wrong);
        let status = target::status(&fixture).ok();
        if let Some(status) = &status {
            events.take(status);
        }
        let words = fixture.last_words();
        if wrong.is_empty() {
            wrong.extend(fixture.stop().err().map(|why| format!("{why:#}")));
        } else {
            wrong.push(words);
            drop(fixture);
        }
        let shots = shots.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut kills = table_of(&shots, begin, &names, &syncs);
        events.assign(&mut kills);
        let right = |run: &&Run| run.wrong.is_empty() && !run.cut_short;
        Ok(Results {
            version: 1,
            command: self.command(),
            seed: self.seed,
            work: workload.describe(),
            every_ms: u64::try_from(self.args.every.as_millis()).unwrap_or(u64::MAX),
            stores: self.args.stores,
            builds: runs.iter().filter(right).count() as u64,
            undisturbed_seconds: oracle.took.as_secs_f64(),
            seconds: begin.elapsed().as_secs_f64(),
            wrong,
            operations: names.operations,
            syncs: syncs.operations,
            unseen: events.unseen(),
            checkpoints: events.checkpoints(),
            blackout: status.as_ref().map(Blackout::of).unwrap_or_default(),
            kills,
        })
    }

    fn command(&self) -> String {
        let LorisArgs { kills, every, targets, aimed, signals, stores, scale, jobs, .. } =
            self.args;
        let value = |target: &Target| {
            target.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        let targets: Vec<String> = targets.iter().map(value).collect();
        let signals: Vec<&str> = signals.iter().map(|signal| signal_name(*signal)).collect();
        format!(
            "belay-chaos study loris --kills {kills} --every {}ms --targets {} --aimed {aimed} --signals {} --stores {stores} \
             --scale {scale} --jobs {jobs} --seed {}",
            every.as_millis(),
            targets.join(","),
            signals.join(","),
            self.seed
        )
    }

    /// Kills until it is enough; gives what the processes have said of that.
    fn hunt(&self, fixture: &Fixture, stop: &Stop, shots: &Mutex<Vec<Shot>>) -> Result<Events> {
        let args = self.args;
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed ^ 0x6c6f_7269);
        let place = Place::find(fixture.volume_id()?)?.context("the volume has no memory")?;
        let mut events = Events::default();
        let mut truce = Instant::now();
        let mut kills = 0;
        while kills < args.kills && !stop.wait(killer::pause(args.every, &mut rng)) {
            let target = *args.targets.choose(&mut rng).context("nothing is to be killed")?;
            let signal = *args.signals.choose(&mut rng).context("no signals to kill with")?;
            let aimed = !target.is_belay() && rng.random_bool(args.aimed.clamp(0.0, 1.0));
            // Most are short.
            let into = INTO.mul_f64(rng.random::<f64>().powi(3));
            if target.is_belay() && Instant::now() < truce {
                continue;
            }
            // Who it is must be known before: in a checkpoint there is no time to ask.
            let status = target::status(fixture)?;
            events.take(&status);
            let Some(pid) = target.pid(&status) else { continue };
            let aimed = aimed && await_checkpoint(&place, stop)?;
            if aimed {
                stop.wait(into);
            }
            let at_us = report::now_us();
            let Some(at) = target::kill(pid, signal)? else { continue };
            if target.is_belay() {
                truce = Instant::now() + TRUCE;
            }
            lock(shots).push(Shot { at, at_us, target, aimed, signal });
            kills += u64::from(target.is_lower());
        }
        Ok(events)
    }
}

/// Waits until a checkpoint is under way; false if there is none in time.
fn await_checkpoint(place: &Place, stop: &Stop) -> Result<bool> {
    let memory: Option<Memory> = memory::open(place)?;
    let memory = memory.context("the volume has no memory")?;
    let begin = Instant::now();
    while memory.sealed().is_none() {
        if begin.elapsed() > CHECKPOINT || stop.wait(LOOK) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn table_of(shots: &[Shot], begin: Instant, names: &Seen, syncs: &Seen) -> Vec<Kill> {
    let next = shots.iter().skip(1).map(Some).chain([None]);
    let pairs = shots.iter().zip(next);
    let one = |(shot, next): (&Shot, Option<&Shot>)| {
        let latest = shot.at + LATEST;
        let until = next.map_or(latest, |next| next.at.min(latest));
        Kill {
            target: shot.target,
            signal: signal_name(shot.signal).to_owned(),
            aimed: shot.aimed,
            at_s: shot.at.duration_since(begin).as_secs_f64(),
            at_us: shot.at_us,
            pause_us: micros(names.longest(shot.at, until)),
            sync_pause_us: micros(syncs.longest(shot.at, until)),
            serving_us: None,
            penultimate: 0,
            replay_us: None,
            replayed: 0,
            dropped: 0,
        }
    };
    pairs.map(one).collect()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn joined<T>(ended: std::thread::Result<Result<T>>) -> Result<T> {
    ended.unwrap_or_else(|_| bail!("a thread has panicked"))
}

/// What a thread gave; if it failed, that is something wrong.
fn taken<T: Default>(found: Result<T>, what: &str, wrong: &mut Vec<String>) -> T {
    found.unwrap_or_else(|why| {
        wrong.push(format!("{what}: {why:#}"));
        T::default()
    })
}
