//! What is simulated again and again, each time with another seed.

use crate::Random;
use crate::logical::Volume;
use crate::outcome::Outcome;
use crate::posix::{Compared, random_act};
use crate::random_capacity;
use crate::sabotage::Sabotage;
use crate::stack::Stack;
use crate::store::{Act, Simulation, random_act as random_store_act};
use crate::whole::{Whole, every};
use belay_cache::Capacity;
use belay_object::PAGE;
use belay_store::{DataMode, Parameters};
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is done with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Files and directories on all layers, with everything that can happen.
    Whole,
    /// Short histories on all layers, once for every write at which the power can fail, or the
    /// stores can die.
    EveryWrite,
    /// The same, once for every store to the memory at which the namespace module or the cache can
    /// die.
    EveryStore,
    /// Files, directories, links, devices and attributes of all kinds; the module dies at any
    /// store.
    Namespace,
    /// Transactions on objects; module, cache and stores die, and the power fails.
    Cache,
    /// The same on volumes that are full.
    Full,
    /// Operations on several stores, which agree on a checkpoint.
    Logical,
    /// Operations on one store, which writes data in place or elsewhere.
    FileStore,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Whole,
        Self::EveryWrite,
        Self::EveryStore,
        Self::Namespace,
        Self::Cache,
        Self::Full,
        Self::Logical,
        Self::FileStore,
    ];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::EveryWrite => "every-write",
            Self::EveryStore => "every-store",
            Self::Namespace => "namespace",
            Self::Cache => "cache",
            Self::Full => "full",
            Self::Logical => "logical",
            Self::FileStore => "file-store",
        }
    }

    /// Runs it with this seed.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn run(self, seed: u64) -> Result<Outcome, String> {
        match self {
            Self::Whole => whole(seed, None),
            Self::EveryWrite => every::every_write(seed),
            Self::EveryStore => every::every_store(seed),
            Self::Namespace => namespace(seed),
            Self::Cache => cache(seed),
            Self::Full => full(seed, None),
            Self::Logical => logical(seed),
            Self::FileStore => file_store(seed, None),
        }
    }
}

impl belay_seeds::Scenario for Scenario {
    type Tally = Outcome;

    /// Those with most work behind each operation have half of what the others have.
    fn share(self) -> u64 {
        match self {
            Self::Cache | Self::Full => 1,
            _ => 2,
        }
    }

    fn run(self, seed: u64) -> Result<Outcome, String> {
        Self::run(self, seed)
    }
}

fn whole(seed: u64, sabotage: Option<Sabotage>) -> Result<Outcome, String> {
    let mut random = Random::seed_from_u64(!seed);
    let capacity = Capacity {
        frames: [160, 800][random.random_range(0..2)],
        slots: [8, 30, 200][random.random_range(0..3)],
    };
    let mut volume = Whole::new(seed, capacity, sabotage)?;
    volume.run(8)?;
    Ok(volume.outcome)
}

fn namespace(seed: u64) -> Result<Outcome, String> {
    const ACTS: u64 = 1000;
    let oracle = tempfile::tempdir_in("/dev/shm").map_err(|why| why.to_string())?;
    let mut compared = Compared::new(seed, oracle.path())?;
    let mut random = Random::seed_from_u64(seed);
    for _ in 0..ACTS {
        compared.act(&random_act(&mut random))?;
        match random.random_range(0..300) {
            0..8 => compared.checkpoint()?,
            8..12 => compared.compare()?,
            12 => compared.check()?,
            13 => compared.remount()?,
            _ => {}
        }
    }
    compared.compare()?;
    compared.check()?;
    Ok(Outcome {
        operations: ACTS,
        module_deaths: compared.deaths,
        answered_by_the_dead: compared.done_by_the_dead,
        ..Outcome::default()
    })
}

fn of(stack: &Stack) -> Outcome {
    let done = stack.outcome;
    Outcome {
        operations: done.transactions + done.syncs + done.checkpoints + done.refusals,
        module_deaths: done.module_deaths,
        answered_by_the_dead: done.published_by_the_dead,
        cache_deaths: done.cache_deaths,
        store_deaths: done.lower_deaths,
        power_failures: done.power_failures,
        promises_kept: done.promises_kept,
        no_space: done.refusals,
        torn: done.torn,
        bytes: done.pages * PAGE as u64,
        ..Outcome::default()
    }
}

fn cache(seed: u64) -> Result<Outcome, String> {
    let mut random = Random::seed_from_u64(seed);
    let capacity = random_capacity(&mut random);
    let mut stack = Stack::new(seed, random.random_range(1..3), capacity)?;
    stack.run(200)?;
    Ok(of(&stack))
}

fn full(seed: u64, sabotage: Option<Sabotage>) -> Result<Outcome, String> {
    let mut random = Random::seed_from_u64(seed);
    let capacity = random_capacity(&mut random);
    let stores = random.random_range(1..3);
    let mut stack = Stack::with(seed, stores, capacity, random.random_range(300..700))?;
    stack.fill_but(random.random_range(0..150))?;
    sabotage.into_iter().for_each(|sabotage| stack.sabotage(sabotage));
    stack.run(300)?;
    let (before, pages, after) = stack.empty_and_fill()?;
    if pages + before / 64 + 56 < before || before != after {
        return Err(format!("{pages} pages of {before} could be written, {after} in the end"));
    }
    Ok(of(&stack))
}

fn logical(seed: u64) -> Result<Outcome, String> {
    let mut random = Random::seed_from_u64(seed);
    let mut volume = Volume::new(seed, random.random_range(1..4), 6000)?;
    let mut outcome = Outcome::default();
    for _ in 0..5 {
        let most = [60, 1200][random.random_range(0..2)];
        let end = volume.power().steps() + random.random_range(1..most);
        volume.power().end_at(Some(end));
        volume.life(random.random_range(1..150))?;
        ended(&mut outcome, &mut random, |power| volume.end(power));
        volume.reopen()?;
    }
    Ok(Outcome { operations: volume.operations, torn: volume.torn, ..outcome })
}

/// A life has ended: by a power failure, or alone.
fn ended(outcome: &mut Outcome, random: &mut Random, end: impl FnOnce(bool)) {
    let power = random.random();
    end(power);
    outcome.power_failures += u64::from(power);
    outcome.store_deaths += u64::from(!power);
}

fn file_store(seed: u64, sabotage: Option<Sabotage>) -> Result<Outcome, String> {
    let mut random = Random::seed_from_u64(seed);
    let parameters = Parameters {
        twin_offset: [4, 8, 16, 32][random.random_range(0..4)],
        group_blocks: [256, 512, 1024][random.random_range(0..3)],
        data: [DataMode::OutOfPlace, DataMode::InPlace][random.random_range(0..2)],
        frees_at_once: sabotage == Some(Sabotage::FreedAtOnce),
    };
    let mut simulation = Simulation::new(seed, random.random_range(600..4096), parameters)?;
    let mut outcome = Outcome::default();
    for _ in 0..6 {
        let count = random.random_range(1..150);
        let acts: Vec<Act> = (0..count).map(|_| random_store_act(&mut random)).collect();
        let end = simulation.disk().power().steps() + random.random_range(1..1500);
        simulation.disk().power().end_at(Some(end));
        simulation.life(&acts, [12, 60, 4000][random.random_range(0..3)])?;
        ended(&mut outcome, &mut random, |power| simulation.end(power));
        simulation.reopen()?;
    }
    let done = simulation.outcome;
    Ok(Outcome { operations: done.operations, torn: done.torn, ..outcome })
}

/// The first of so many seeds at which something that is done wrong on purpose is found, and what
/// is said of it.
pub fn first_found(sabotage: Option<Sabotage>, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| {
        let ran = catch_unwind(AssertUnwindSafe(|| match sabotage {
            Some(Sabotage::NoCredits) => full(seed, sabotage),
            // A store that is nearly full finds it soon.
            Some(Sabotage::FreedAtOnce) => file_store(seed, sabotage),
            sabotage => whole(seed, sabotage),
        }));
        match ran {
            Ok(Ok(_)) => None,
            Ok(Err(why)) => Some((seed, why)),
            Err(_) => Some((seed, "it panics".to_owned())),
        }
    })
}
