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
    let mut rng = ChaCha12Rng::seed_from_u64(plan.seed ^ 0x766f_6c75);
    let mut truce = Instant::now();
    while plan.limit.is_none_or(|limit| toll.kills() < limit) {
        if toll.stop.wait(pause(plan.every, &mut rng)) || toll.stop.asked() {
            return Ok(());
        }
        let status = target::status(fixture)?;
        let mut victims = victims(&status, truce <= Instant::now(), &mut rng);
        victims.shuffle(&mut rng);
        // One in four times several at once, all of them included.
        let most = if rng.random_bool(0.25) { victims.len() } else { 1 };
        let count = rng.random_range(1..=most.max(1));
        let signal = *plan.signals.choose(&mut rng).context("no signals to kill with")?;
        if let Some(progress) = &plan.progress
            && rng.random_bool(0.5)
        {
            aim(progress, Duration::from_micros(rng.random_range(0..300)));
        }
        // Who has ended since needs no killing.
        let own = belays(&status);
        if victims.iter().take(count).any(|pid| own.contains(pid)) {
            truce = Instant::now() + TRUCE;
        }
        let killed = victims.iter().take(count).filter(|pid| process::kill(**pid, signal).is_ok());
        toll.count(killed.count() as u64);
    }
    Ok(())
}
