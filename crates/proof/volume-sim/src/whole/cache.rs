//! The process of the cache: the service that ships, with the clock of the simulation.

use super::stores::{Clock, Fate, Link, Process};
use crate::Random;
use crate::memory::SimMemory;
use belay_cache::Shared;
use belay_channel::{CacheAnswer, CacheAsk, RemoteStore};
use belay_object::ObjectId;
use belay_service::cache::{Recovery, Surroundings, begin};
use rand::{Rng, SeedableRng};
use std::rc::Rc;
use std::time::Duration;

/// The number of the mount.
const MOUNT: u64 = 1;

/// A life of the process.
#[derive(Debug)]
pub(super) struct Cache {
    service: belay_service::Cache<SimMemory, Link, Given>,
    /// Its view of the memory.
    pub(super) view: SimMemory,
    /// When it dies.
    pub(super) fate: Rc<Fate>,
}

impl Cache {
    /// It begins, and sets the memory up unless that was done.
    ///
    /// # Errors
    /// Why that cannot be done.
    pub(super) fn begin(
        stores: &Rc<Process>,
        shared: Shared<SimMemory>,
        view: SimMemory,
        clock: &Clock,
        seed: u64,
    ) -> Result<Self, String> {
        let fate = Rc::<Fate>::default();
        let link = Link::writer(stores, view.clone(), Rc::clone(&fate));
        let mut below = RemoteStore::writer_over(link);
        let random = Random::seed_from_u64(seed);
        let (clock, by) = (clock.clone(), view.clone());
        let mut given = Given { clock, stores: Rc::clone(stores), view: by, random };
        if !shared.is_valid() {
            begin(&shared, &mut below, &mut given).map_err(|why| format!("{why:#}"))?;
        }
        let service = belay_service::Cache::new(shared, below, MOUNT, given);
        Ok(Self { service, view, fate })
    }

    /// Has it take a checkpoint.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn checkpoint(&mut self) -> Result<(), String> {
        told(self.service.answer(CacheAsk::Checkpoint))
    }

    /// Has it make an object durable, and all names.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) fn sync(&mut self, object: ObjectId) -> Result<(), String> {
        told(self.service.answer(CacheAsk::Sync(vec![object.0])))
    }

    /// When something is due that nobody asks for.
    pub(super) fn due(&self) -> Duration {
        self.service.due()
    }

    /// It is due.
    pub(super) fn act(&mut self) {
        self.service.act();
    }

    /// The mount ends.
    ///
    /// # Errors
    /// Why what is in the memory could not be brought to the stores.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.service.end()
    }
}

fn told(answer: CacheAnswer) -> Result<(), String> {
    match answer {
        CacheAnswer::Done => Ok(()),
        CacheAnswer::Refused(why) => Err(why),
    }
}

/// What the process gives to the service.
#[derive(Debug)]
struct Given {
    clock: Clock,
    stores: Rc<Process>,
    view: SimMemory,
    random: Random,
}

impl Surroundings for Given {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn renew_patience(&mut self) {}

    fn is_patience_over(&self) -> bool {
        // Of what it is asked to do nobody dies for ever here: it waits for the next life of the
        // stores, unless it is dead itself, or has no power.
        self.view.is_dead() || self.stores.is_away()
    }

    fn recovered(&mut self, _: Recovery) {}

    fn taken(&mut self, _: &Result<(), String>) {}

    fn jump(&mut self) -> u64 {
        self.random.random_range(0..1 << 32)
    }

    fn ends_within(&mut self, time: Duration) -> anyhow::Result<bool> {
        self.clock.goes_on(time);
        Ok(false)
    }
}
