//! What came of a simulation.

use crate::disk::{Fault, Trouble};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What came of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations that were done, and whose results were compared.
    pub operations: u64,
    /// Deaths of the namespace module.
    pub module_deaths: u64,
    /// Of these, those that had published what they were asked for, and were asked for it again.
    pub answered_by_the_dead: u64,
    /// Deaths of the cache.
    pub cache_deaths: u64,
    /// Deaths of the process of the stores.
    pub store_deaths: u64,
    /// Power failures.
    pub power_failures: u64,
    /// Files that were synced, and were there after a power failure.
    pub promises_kept: u64,
    /// What was done wrong to blocks.
    pub faults: BTreeMap<Fault, u64>,
    /// What disks answered for a while.
    pub troubles: BTreeMap<Trouble, u64>,
    /// Accesses that were an error meanwhile.
    pub disk_errors: u64,
    /// Accesses that were not answered before others had done something.
    pub stalls: u64,
    /// Requests that were done meanwhile.
    pub done_in_stalls: u64,
    /// Checkpoints and syncs that could not be made because of that.
    pub refused: u64,
    /// Transactions for which there was no room.
    pub no_space: u64,
    /// Pages that were being overwritten in place when the power failed, and could not be read
    /// after it.
    pub torn: u64,
    /// Bytes that were read and compared.
    pub bytes: u64,
    /// Reads that were answered with an error because of a damaged block.
    pub damaged_reads: u64,
    /// Damaged volumes that were checked, and said to be damaged.
    pub found_damaged: u64,
}

impl Outcome {
    /// Adds another one.
    pub fn join(&mut self, other: &Self) {
        let Self {
            operations,
            module_deaths,
            answered_by_the_dead,
            cache_deaths,
            store_deaths,
            power_failures,
            promises_kept,
            faults,
            troubles,
            disk_errors,
            stalls,
            done_in_stalls,
            refused,
            no_space,
            torn,
            bytes,
            damaged_reads,
            found_damaged,
        } = other;
        for (mine, theirs) in [
            (&mut self.operations, operations),
            (&mut self.module_deaths, module_deaths),
            (&mut self.answered_by_the_dead, answered_by_the_dead),
            (&mut self.cache_deaths, cache_deaths),
            (&mut self.store_deaths, store_deaths),
            (&mut self.power_failures, power_failures),
            (&mut self.promises_kept, promises_kept),
            (&mut self.disk_errors, disk_errors),
            (&mut self.stalls, stalls),
            (&mut self.done_in_stalls, done_in_stalls),
            (&mut self.refused, refused),
            (&mut self.no_space, no_space),
            (&mut self.torn, torn),
            (&mut self.bytes, bytes),
            (&mut self.damaged_reads, damaged_reads),
            (&mut self.found_damaged, found_damaged),
        ] {
            *mine += theirs;
        }
        for (fault, count) in faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (trouble, count) in troubles {
            *self.troubles.entry(*trouble).or_default() += count;
        }
    }
}

impl belay_seeds::Tally for Outcome {
    fn operations(&self) -> u64 {
        self.operations
    }

    fn join(&mut self, other: &Self) {
        Self::join(self, other);
    }
}
