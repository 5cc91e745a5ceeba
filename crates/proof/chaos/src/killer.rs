//! Kills a fixture's daemon at moments of its choice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use belay_fixtures::{Fixture, Mode, Signal, process};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::interrupt::Stop;

/// After so long it is clear that a daemon has survived a signal: Rust's runtime catches SIGSEGV,
/// and lets those be that somebody has sent.
const SURVIVED: Duration = Duration::from_secs(2);
/// How long a successor may take to appear.
const SUCCESSOR: Duration = Duration::from_secs(60);

/// When and how to kill.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Mean time from a successor's start to its death, beyond what the start takes.
    pub every: Duration,
    /// How long the start of a bare one takes. Some of the kills are meant for it, most for what
    /// comes after.
    pub start: Duration,
    /// Drawn from with equal chances.
    pub signals: Vec<Signal>,
    /// No more than so many.
    pub limit: Option<u64>,
    /// Counts what the clients do, so that kills can be aimed at the start of an operation.
    pub progress: Option<Arc<AtomicU64>>,
}

/// A killer's state as others see it.
#[derive(Debug, Default)]
pub struct Toll {
    kills: AtomicU64,
    failure: Mutex<Option<String>>,
    /// Stops the killer.
    pub stop: Stop,
}

impl Toll {
    /// Kills so far.
    pub fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    /// So many more.
    pub fn count(&self, kills: u64) {
        self.kills.fetch_add(kills, Ordering::Relaxed);
    }

    /// Why the killer gave up, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A fixture held by belay, with these arguments, for somebody who kills its daemon: however often
/// it dies, that is not its own fault, so belay is not to give it up, unless the arguments say so.
pub fn held(belay_args: &[String]) -> Mode {
    let mut extra_args = belay_args.to_vec();
    if !extra_args.iter().any(|arg| arg.starts_with("--max-crashes")) {
        extra_args.push("--max-crashes=0".to_owned());
    }
    Mode::Held { extra_args }
}

/// Kills until it is stopped or has killed enough. Meant for a thread of its own; failures are left
/// in the toll.
pub fn run(fixture: &Fixture, plan: &Plan, toll: &Toll) {
    if let Err(error) = hunt(fixture, plan, toll) {
        *toll.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{error:#}"));
    }
}

fn hunt(fixture: &Fixture, plan: &Plan, toll: &Toll) -> Result<()> {
    let mut rng = ChaCha12Rng::seed_from_u64(plan.seed ^ 0x6b69_6c6c);
    if fixture.kind().is_volume() {
        return crate::volume::hunt(fixture, plan, toll);
    }
    let mut victim = fixture.daemon_pid()?;
    while plan.limit.is_none_or(|limit| toll.kills() < limit) {
        // One in ten dies as soon as it is seen: probably while it recovers. Most are waited for
        // until they serve: how long that takes changes with what else the machine does.
        if rng.random_bool(0.8) {
            serving(fixture, plan.start, &toll.stop)?;
        }
        let pause = pause(plan.every, &mut rng);
        if !rng.random_bool(0.1) && toll.stop.wait(pause) || toll.stop.asked() {
            return Ok(());
        }
        let signal = *plan.signals.choose(&mut rng).context("no signals to kill with")?;
        if let Some(progress) = &plan.progress
            && rng.random_bool(0.5)
        {
            aim(progress, Duration::from_micros(rng.random_range(0..300)));
        }
        if let Err(error) = process::kill(victim, signal) {
            fixture.check()?;
            if fixture.daemon_pid()? == victim {
                return Err(error);
            }
        } else {
            toll.kills.fetch_add(1, Ordering::Relaxed);
            if !fixture.is_held() {
                return Ok(());
            }
        }
        victim = successor(fixture, victim, &toll.stop)?;
    }
    Ok(())
}

/// Waits until the daemon serves; of a bare one, for as long as a start takes.
fn serving(fixture: &Fixture, start: Duration, stop: &Stop) -> Result<()> {
    if !fixture.is_held() {
        stop.wait(start);
        return Ok(());
    }
    let deadline = Instant::now() + SUCCESSOR;
    let mut wait = Duration::from_millis(2);
    while fixture.belay_status()?["state"] != "serving" {
        if stop.asked() || Instant::now() > deadline {
            return Ok(());
        }
        stop.wait(wait);
        wait = (wait * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

/// Exponentially distributed, as for things that happen at random, but not too long.
pub(crate) fn pause(mean: Duration, rng: &mut ChaCha12Rng) -> Duration {
    let uniform: f64 = rng.random_range(0.001..1.0);
    mean.mul_f64((-uniform.ln()).min(5.0))
}

/// Waits until an operation ends, which is when the next begins, and then a little.
pub(crate) fn aim(progress: &AtomicU64, delay: Duration) {
    let before = progress.load(Ordering::Relaxed);
    let deadline = Instant::now() + Duration::from_secs(1);
    while progress.load(Ordering::Relaxed) == before && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    let start = Instant::now();
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// Waits for a daemon other than `old`. When a stop is asked for meanwhile, it is still waited for.
fn successor(fixture: &Fixture, old: u32, stop: &Stop) -> Result<u32> {
    let begin = Instant::now();
    let deadline = begin + SUCCESSOR;
    let mut wait = Duration::from_millis(1);
    let mut insisted = false;
    loop {
        let seen = fixture.daemon_pid();
        if matches!(seen, Ok(pid) if pid == old) && begin.elapsed() > SURVIVED && !insisted {
            insisted = true;
            let _ = process::kill(old, Signal::KILL);
        }
        match &seen {
            Ok(pid) if *pid != old => return Ok(*pid),
            _ if Instant::now() < deadline => {}
            Ok(_) => {
                bail!("belay still names the killed daemon (process {old}) after {SUCCESSOR:?}")
            }
            Err(_) => return seen.with_context(|| format!("no successor within {SUCCESSOR:?}")),
        }
        fixture.check()?;
        if stop.asked() {
            std::thread::sleep(wait);
        } else {
            stop.wait(wait);
        }
        wait = (wait * 2).min(Duration::from_millis(20));
    }
}
