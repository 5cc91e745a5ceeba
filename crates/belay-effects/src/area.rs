//! What is known of a mount's effects as a whole, and what a crash has left of each request.

use crate::call::Kind;
use crate::log::{COMMITTED, Log, TORN};
use belay_recorder::{Layout, Memory, Slot};

// Words from `Layout::effects` on.
const IMAGE_DEVICE: usize = 0;
const IMAGE_INODE: usize = 1;
const COUNTERS: usize = 8;
const IMAGE_PATH: usize = 512; // length, then up to 511 words
const PATH_WORDS: usize = 511;

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

/// The image of a daemon under the policy `transaction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Device number, of a block device its own.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Absolute path by which the daemon opened it.
    pub path: Vec<u8>,
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

    /// Remembers the image, for those who must finish a transaction without the daemon.
    pub fn set_image(&self, image: &Image) {
        let at = self.layout.effects;
        self.memory.store(at + IMAGE_PATH, 0);
        self.memory.store(at + IMAGE_DEVICE, image.device);
        self.memory.store(at + IMAGE_INODE, image.inode);
        let path = image.path.get(..PATH_WORDS * 8).unwrap_or(&image.path);
        self.memory.store_bytes(at + IMAGE_PATH + 1, path);
        self.memory.store(at + IMAGE_PATH, path.len() as u64);
    }

    /// The image, if there is one.
    pub fn image(&self) -> Option<Image> {
        let at = self.layout.effects;
        let length = self.memory.load(at + IMAGE_PATH) as usize;
        if length == 0 || length > PATH_WORDS * 8 {
            return None;
        }
        let mut path = vec![0; length];
        self.memory.load_bytes(at + IMAGE_PATH + 1, &mut path);
        Some(Image {
            device: self.memory.load(at + IMAGE_DEVICE),
            inode: self.memory.load(at + IMAGE_INODE),
            path,
        })
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
