//! Which layouts survive power failures: one store after the other is worked with, the power fails
//! at any of its writes, and what is there afterwards is compared with a model.

use crate::Random;
use crate::store::{Act, Simulation, random_act};
use belay_store::Parameters;
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Blocks of each disk.
const BLOCKS: u64 = 2048;
/// Lives of each store, each of which ends by a power failure.
const LIVES: usize = 4;

/// What came of a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survival {
    /// Seeds that were tried, from 0 on; each has a store of its own.
    pub seeds: u64,
    /// Power failures in all of them.
    pub power_failures: u64,
    /// Blocks of data that were neither old nor new afterwards: reading them is an error. Only what
    /// is written in place can be so.
    pub torn: u64,
    /// Seeds at which something was lost, or was another than it must be.
    pub losses: u64,
    /// The first of them, and what is said of it.
    pub first: Option<(u64, String)>,
}

/// Tries so many seeds.
#[must_use]
pub fn of(parameters: Parameters, seeds: u64) -> Survival {
    let mut all = Survival { seeds, ..Survival::default() };
    for seed in 0..seeds {
        // A store that was lost may be found out by anything that reads it.
        let lost = catch_unwind(AssertUnwindSafe(|| one(parameters, seed, &mut all)));
        if let Err(why) = lost.unwrap_or_else(|_| Err("it panics".to_owned())) {
            all.losses += 1;
            all.first.get_or_insert((seed, why));
        }
    }
    all
}

fn one(parameters: Parameters, seed: u64, all: &mut Survival) -> Result<(), String> {
    let mut random = Random::seed_from_u64(seed);
    let mut simulation = Simulation::new(seed, BLOCKS, parameters)?;
    for _ in 0..LIVES {
        let acts: Vec<Act> = (0..100).map(|_| random_act(&mut random)).collect();
        let end = simulation.disk().power().steps() + random.random_range(1..1500);
        simulation.disk().power().end_at(Some(end));
        simulation.life(&acts, 4000)?;
        simulation.end(true);
        all.power_failures += 1;
        let torn = simulation.outcome.torn;
        simulation.reopen()?;
        all.torn += simulation.outcome.torn - torn;
    }
    Ok(())
}
