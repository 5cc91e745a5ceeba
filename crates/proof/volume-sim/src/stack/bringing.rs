//! How what was published is brought to the stores, by checkpoints and by syncs, and who dies of
//! that.

use super::{Lives, OBJECTS, Stack, open};
use crate::asked::Asked;
use crate::disk::SimDisk;
use belay_cache::Shared;
use belay_object::ObjectId;
use belay_store::bounds;
use rand::Rng;

impl Stack {
    /// Takes a checkpoint. The cache may die at any store, the layers below at any write.
    pub(super) fn checkpoint<'d>(
        &mut self,
        disks: &'d [SimDisk],
        lives: &mut Lives<'d>,
    ) -> Result<(), String> {
        match self.random.random_range(0..5) {
            0 => {
                let most = [8, 60, 4000][self.random.random_range(0..3)];
                lives.cache.1.dies_after(Some(self.random.random_range(0..most)));
            }
            1 => {
                let most = [3, 20, 100][self.random.random_range(0..3)];
                let end = self.power.steps() + self.random.random_range(0..most);
                self.power.end_at(Some(end));
            }
            _ => {}
        }
        // What it will have.
        let epoch = lives.lower.epoch();
        let shared = Shared::new(self.memory.another(), self.layout);
        self.checkpoints.insert(epoch, self.now.clone());
        let by = lives.cache.1.clone();
        let mut asked = Asked::new(&mut lives.lower, by, Some((shared, bounds::SLACK)));
        let taken = lives.cache.0.checkpoint(&mut asked);
        let (took, paid) = asked.seen()?;
        (self.outcome.taken, self.outcome.paid) =
            (self.outcome.taken + took, self.outcome.paid + paid);
        if lives.cache.1.is_dead() {
            self.outcome.cache_deaths += 1;
            self.power.end_at(None);
            // The layers below live on, and may have taken it.
            self.outcome.at_the_end += u64::from(lives.lower.epoch() > epoch);
            // Whoever is in the middle of a change below has no other choice than its last
            // checkpoint.
            if self.random.random() {
                lives.lower = open(disks)?;
            }
            self.forget_unsealed();
            lives.cache = self.begin_cache();
            return Ok(());
        }
        lives.cache.1.dies_after(None);
        if self.power.is_off() {
            self.outcome.lower_deaths += 1;
            self.power.end_at(None);
            lives.lower = open(disks)?;
            self.outcome.at_the_end += u64::from(lives.lower.epoch() > epoch);
            return Ok(());
        }
        self.power.end_at(None);
        taken.map_err(|why| why.to_string())?;
        self.overwritten.clear();
        self.outcome.checkpoints += 1;
        Ok(())
    }

    /// Syncs an object: what it is, and all that was done to names before, is there after a power
    /// failure.
    pub(super) fn sync<'d>(
        &mut self,
        disks: &'d [SimDisk],
        lives: &mut Lives<'d>,
    ) -> Result<(), String> {
        let object = ObjectId(self.random.random_range(0..OBJECTS));
        match self.random.random_range(0..6) {
            0 => {
                lives.cache.1.dies_after(Some(self.random.random_range(0..3)));
            }
            1 => {
                let end = self.power.steps() + self.random.random_range(0..6);
                self.power.end_at(Some(end));
            }
            _ => {}
        }
        let by = lives.cache.1.clone();
        let mut asked = Asked::new(&mut lives.lower, by, None);
        let synced = lives.cache.0.sync(&mut asked, &[object]);
        if (synced.is_err() || self.power.is_off()) && self.names.is_empty() {
            // It may be in the log all the same, and need not.
            let now = std::iter::once(&self.now);
            self.names = self.checkpoints.values().chain(now).cloned().collect();
        }
        if lives.cache.1.is_dead() {
            lives.cache = self.begin_cache();
        }
        lives.cache.1.dies_after(None);
        if self.power.is_off() {
            // The layers below have died, and nothing was promised.
            self.power.end_at(None);
            lives.lower = open(disks)?;
            return Ok(());
        }
        self.power.end_at(None);
        match synced {
            Ok(true) => {
                self.outcome.syncs += 1;
                self.names = vec![self.now.clone()];
                if let Some(known) = self.now.get(&object) {
                    self.promised.insert(object, known.clone());
                }
                Ok(())
            }
            Ok(false) => self.checkpoint(disks, lives),
            Err(_) => Ok(()),
        }
    }

    /// An epoch that was not sealed ends somewhere else.
    pub(super) fn forget_unsealed(&mut self) {
        let shared = Shared::new(self.memory.another(), self.layout);
        let last = shared.last_sealed();
        self.checkpoints.retain(|epoch, _| *epoch <= last);
    }
}
