//! What the daemon was seen to keep to itself, besides what is open: which is lost if it dies. A
//! list with a bound, and the number of what found no room. Such a path is known again by two bits,
//! so that it is counted once however often something is kept of it; of many, some are not counted.
//!
//! A daemon may die while it is written: it is shorter then, and never names what is not so.

use super::block::Control;
use super::words::W_KEPT;
use crate::index::hash_bytes;
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

/// Paths that the list holds.
const PATHS: usize = 15;
const WORDS: usize = 32;
const TEXT: usize = (WORDS - 1) * 8;
/// Words of the bits of paths without room.
const MARKS: usize = WORDS - 1;

/// What is kept of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPath {
    /// The request by which that came to be.
    pub opcode: u32,
    /// The path below the mountpoint.
    pub path: Vec<u8>,
}

/// All that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    list: Vec<KeptPath>,
    /// How many more there are, or were.
    pub more: u32,
    marks: [u64; MARKS],
}

impl Kept {
    /// The paths, the oldest first.
    pub fn list(&self) -> &[KeptPath] {
        &self.list
    }

    /// By which request `path` came to be in the list.
    pub fn find(&self, path: &[u8]) -> Option<u32> {
        self.list.iter().find(|kept| kept.path == path).map(|kept| kept.opcode)
    }

    /// Adds a path; one that is there stays as it is.
    pub fn add(&mut self, opcode: u32, path: Vec<u8>) {
        if self.find(&path).is_some() {
            return;
        }
        if self.list.len() < PATHS && path.len() <= TEXT {
            self.list.push(KeptPath { opcode, path });
        } else if self.mark(&path) {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Marks a path that finds no room; gives whether it was not marked before.
    fn mark(&mut self, path: &[u8]) -> bool {
        let mut new = false;
        for seed in [1, 2] {
            let bit = hash_bytes(seed, path) as usize % (MARKS * 64);
            if let Some(word) = self.marks.get_mut(bit / 64) {
                new |= *word & (1 << (bit % 64)) == 0;
                *word |= 1 << (bit % 64);
            }
        }
        new
    }

    /// Takes a path away.
    pub fn remove(&mut self, path: &[u8]) {
        self.list.retain(|kept| kept.path != path);
    }

    /// Takes all away that came by such requests. With any of them goes the number of what has no
    /// name: some of it may be of that kind.
    pub fn clear(&mut self, is_one: impl Fn(u32) -> bool) {
        self.list.retain(|kept| !is_one(kept.opcode));
        self.more = 0;
        self.marks = [0; MARKS];
    }

    /// What was called `old`, or is below that, is called `new` now. Gives whether `old` itself was
    /// in the list.
    pub fn rename(&mut self, old: &[u8], new: &[u8]) -> bool {
        let mut found = false;
        self.remove(new);
        for kept in &mut self.list {
            let Some(rest) = kept.path.strip_prefix(old) else { continue };
            if rest.is_empty() || rest.starts_with(b"/") {
                found |= rest.is_empty();
                kept.path = [new, rest].concat();
            }
        }
        self.list.retain(|kept| kept.path.len() <= TEXT);
        found
    }
}

impl<M: Memory> Control<'_, M> {
    /// What the daemon keeps to itself.
    pub fn kept(&self) -> Kept {
        let word = self.memory.load(W_KEPT);
        let item = |index| {
            let at = kept_at(index);
            let word = self.memory.load(at);
            let mut path = vec![0; (low(word) as usize).min(TEXT)];
            self.memory.load_bytes(at + 1, &mut path);
            KeptPath { opcode: high(word), path }
        };
        let list = (0..(low(word) as usize).min(PATHS)).map(item).collect();
        let marks = std::array::from_fn(|index| self.memory.load(W_KEPT + 1 + index));
        Kept { list, more: high(word), marks }
    }

    /// Sets that.
    pub fn set_kept(&self, kept: &Kept) {
        let old = self.kept();
        let same = old.list.iter().zip(&kept.list).take_while(|(old, new)| old == new).count();
        self.memory.store(W_KEPT, pair(kept.more, same as u32));
        if old.marks != kept.marks {
            self.memory.store_words(W_KEPT + 1, kept.marks);
        }
        for (index, item) in kept.list.iter().enumerate().take(PATHS).skip(same) {
            let path = item.path.get(..TEXT).unwrap_or(&item.path);
            self.memory.store_bytes(kept_at(index) + 1, path);
            self.memory.store(kept_at(index), pair(item.opcode, path.len() as u32));
        }
        self.memory.store(W_KEPT, pair(kept.more, kept.list.len().min(PATHS) as u32));
    }
}

fn kept_at(index: usize) -> usize {
    W_KEPT + (index + 1) * WORDS
}
