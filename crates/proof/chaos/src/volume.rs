//! Kills the processes of a volume: one at a time, or several at once.

use crate::killer::{Plan, Toll, aim, pause};
use crate::target::{self, Target};
use anyhow::{Context, Result};
use belay_fixtures::{Fixture, process};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long keeper and supervisor are let be after one of them was killed: the mount ends with
/// both, and who has just been started in the place of one has not taken over yet.
const TRUCE: Duration = Duration::from_secs(2);

/// The processes that live, by what a status says. `own`: keeper or supervisor may be among them.
fn victims(status: &Value, own: bool, rng: &mut impl Rng) -> Vec<u32> {
    let roles = [Target::Namespace, Target::Store, Target::Cache];
    let mut found: Vec<u32> = roles.iter().filter_map(|role| role.pid(status)).collect();
    if own {
        found.extend(belays(status).choose(rng));
    }
    found
}

/// Keeper and supervisor.
fn belays(status: &Value) -> Vec<u32> {
    [Target::Supervisor, Target::Keeper].iter().filter_map(|role| role.pid(status)).collect()
}

/// Kills until it is to stop, or has killed enough.
pub fn hunt(fixture: &Fixture, plan: &Plan, toll: &Toll) -> Result<()> {
    let mut hunter = Hunter::new(plan);
    while plan.limit.is_none_or(|limit| toll.kills() < limit) {
        if toll.stop.wait(hunter.pause()) || toll.stop.asked() {
            return Ok(());
        }
        toll.count(hunter.strike(&target::status(fixture)?)?);
    }
    Ok(())
}

/// Who kills processes of a volume.
pub struct Hunter<'a> {
    plan: &'a Plan,
    rng: ChaCha12Rng,
    /// Until then keeper and supervisor are let be.
    truce: Instant,
}

impl<'a> Hunter<'a> {
    /// One who follows this plan.
    pub fn new(plan: &'a Plan) -> Self {
        let rng = ChaCha12Rng::seed_from_u64(plan.seed ^ 0x766f_6c75);
        Self { plan, rng, truce: Instant::now() }
    }

    /// How long to wait before the next strike.
    pub fn pause(&mut self) -> Duration {
        pause(self.plan.every, &mut self.rng)
    }

    /// Kills one of the processes that a status tells of, or several. Says how many were killed.
    ///
    /// # Errors
    /// If the plan has no signals.
    pub fn strike(&mut self, status: &Value) -> Result<u64> {
        let rng = &mut self.rng;
        let mut victims = victims(status, self.truce <= Instant::now(), rng);
        victims.shuffle(rng);
        // One in four times several at once, all of them included.
        let most = if rng.random_bool(0.25) { victims.len() } else { 1 };
        let count = rng.random_range(1..=most.max(1));
        let signal = *self.plan.signals.choose(rng).context("no signals to kill with")?;
        if let Some(progress) = &self.plan.progress
            && rng.random_bool(0.5)
        {
            aim(progress, Duration::from_micros(rng.random_range(0..300)));
        }
        // Who has ended since needs no killing.
        let own = belays(status);
        if victims.iter().take(count).any(|pid| own.contains(pid)) {
            self.truce = Instant::now() + TRUCE;
        }
        let killed = victims.iter().take(count).filter(|pid| process::kill(**pid, signal).is_ok());
        Ok(killed.count() as u64)
    }
}
