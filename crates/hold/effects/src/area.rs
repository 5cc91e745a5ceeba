//! What is known of a mount's effects as a whole, and what a crash has left of each request.

use crate::call::Kind;
use crate::log::{COMMITTED, Log, TORN};
use belay_memory::Memory;
use belay_recorder::{Layout, Slot};

// Words from `Layout::effects` on.
const COUNTERS: usize = 8;

/// What happened to effects, all monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Tally {
    /// Calls that were answered from a journal.
    Replayed,
    /// Calls whose outcome was found by a probe.
    Probed,
    /// Requests that did something else when they were done again.
    Diverged,
    /// Effectful calls by threads that had no request.
    Untagged,
    /// Requests that were answered by another thread than the one that took them.
    HandedOver,
    /// Transactions that were committed.
    Committed,
    /// Transactions that were carried out for a dead generation.
    Finished,
    /// Transactions that were too long for their log.
    Torn,
}

/// Names of the tallies, in their order.
pub const TALLY_NAMES: [&str; 8] =
    ["replayed", "probed", "diverged", "untagged", "handed_over", "committed", "finished", "torn"];

/// What the dead generation has left of a request that it had not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing that outlives it.
    Nothing,
    /// Effects, each on record.
    Journal,
    /// Effects that are not (all) on record.
    Unknown,
    /// A part of its image writes is in the image.
    Torn,
}

/// The effects' part of a recorder.
#[derive(Clone, Copy, Debug)]
pub struct Area<'m, M> {
    memory: &'m M,
    layout: Layout,
}

impl<'m, M: Memory> Area<'m, M> {
    /// Looks at the effects in `memory`.
    pub fn new(memory: &'m M, layout: Layout) -> Self {
        Self { memory, layout }
    }

    /// The log of the request in a slot.
    #[inline]
    pub fn log(&self, slot: Slot) -> Log<'m, M> {
        Log::new(self.memory, &self.layout, slot.0 as usize)
    }

    /// The log of what has no slot: belay's own requests, and those that are not answered.
    #[inline]
    pub fn own_log(&self) -> Log<'m, M> {
        Log::new(self.memory, &self.layout, self.layout.capacity.slots)
    }

    /// Adds to a tally.
    pub fn count(&self, tally: Tally) {
        self.memory.add(self.layout.effects + COUNTERS + tally as usize, 1);
    }

    /// A tally's value.
    pub fn tally(&self, tally: Tally) -> u64 {
        self.memory.load(self.layout.effects + COUNTERS + tally as usize)
    }

    /// All tallies with their names.
    pub fn tallies(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let at = self.layout.effects + COUNTERS;
        TALLY_NAMES.iter().enumerate().map(move |(i, name)| (*name, self.memory.load(at + i)))
    }

    /// What is left of the unanswered request `unique` in a slot.
    pub fn left(&self, slot: Slot, unique: u64) -> Left {
        let log = self.log(slot);
        if log.unique() == unique && log.flags() & TORN != 0 {
            return Left::Torn;
        }
        if log.is_opaque(unique) {
            return Left::Unknown;
        }
        if log.unique() != unique {
            return if log.is_whole() { Left::Nothing } else { Left::Unknown };
        }
        let (entries, whole) = log.entries();
        if !whole {
            return Left::Unknown;
        }
        let kinds = || entries.iter().map(|entry| Kind::from_number(entry.kind));
        if kinds().any(|kind| kind.is_none() || kind == Some(Kind::Send)) {
            return Left::Unknown;
        }
        if kinds().flatten().any(Kind::is_effect) { Left::Journal } else { Left::Nothing }
    }

    /// Whether the image writes in a log must be carried out, given whether the request's reply is
    /// on record.
    pub fn is_committed(log: &Log<'_, M>, unique: u64, replied: bool) -> bool {
        log.unique() == unique && unique != 0 && (replied || log.flags() & COMMITTED != 0)
    }
}
