//! Hash indices by linear hashing (Litwin 1980): one bucket is split at each insert that finds
//! the table full, so no insert ever pays for a whole rehash and memory stays proportional.

use crate::dentries;
use crate::store::{INDICES, Store};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair, tail};

/// Which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// Dentries by parent and name.
    Name = 0,
    /// Nodes by the daemon's id and generation.
    Id = 1,
    /// Nodes by inode number: those that the session looks for in that way.
    Ino = 2,
}

const FIRST_BUCKETS: u64 = 64;
/// Items a bucket, on average, before the table grows.
const LOAD: u64 = 2;
/// So far a chain is looked through. A longer one is not one of ours: the memory was damaged, or
/// somebody makes keys that collide.
const MAX_CHAIN: usize = 100_000;

impl<M: Memory> Store<M> {
    pub(crate) fn format_indices(&self) {
        for index in [Index::Name, Index::Id, Index::Ino] {
            self.put(INDICES + 2 * index as usize, FIRST_BUCKETS);
        }
    }

    fn heads(&self, index: Index) -> usize {
        match index {
            Index::Name => self.layout.name_index,
            Index::Id => self.layout.id_index,
            Index::Ino => self.layout.ino_index,
        }
    }

    fn head(&self, index: Index, bucket: u64) -> u32 {
        let word = self.word(self.heads(index) + bucket as usize / 2);
        if bucket & 1 == 0 { low(word) } else { high(word) }
    }

    fn set_head(&self, index: Index, bucket: u64, item: u32) {
        let at = self.heads(index) + bucket as usize / 2;
        if bucket & 1 == 0 { self.set_low(at, item) } else { self.set_high(at, item) }
    }

    /// How many buckets there are; within bounds whatever the memory says.
    pub(crate) fn buckets(&self, index: Index) -> u64 {
        let most = (self.layout.capacity.nodes as u64).max(FIRST_BUCKETS);
        self.header(INDICES + 2 * index as usize).clamp(1, most)
    }

    fn bucket(buckets: u64, hash: u32) -> u64 {
        let level = 1u64 << buckets.ilog2();
        let wide = u64::from(hash) & (2 * level - 1);
        if wide < buckets { wide } else { wide & (level - 1) }
    }

    fn next(&self, index: Index, item: u32) -> u32 {
        match index {
            Index::Name => self.dentry_next_in_index(item),
            Index::Id => self.node_next_by_id(item),
            Index::Ino => self.node_next_by_ino(item),
        }
    }

    fn set_next(&self, index: Index, item: u32, next: u32) {
        match index {
            Index::Name => self.set_dentry_next_in_index(item, next),
            Index::Id => self.set_node_next_by_id(item, next),
            Index::Ino => self.set_node_next_by_ino(item, next),
        }
    }

    fn hash_of(&self, index: Index, item: u32) -> u32 {
        match index {
            Index::Name => self.dentry_hash(item),
            Index::Id => self.node_id_hash(item),
            Index::Ino => self.node_ino_hash(item),
        }
    }

    /// The first item of the chain of `hash` that `matches`.
    pub(crate) fn index_find(
        &self,
        index: Index,
        hash: u32,
        matches: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let buckets = self.buckets(index);
        let mut item = self.head(index, Self::bucket(buckets, hash));
        for _ in 0..MAX_CHAIN {
            if item == 0 {
                return None;
            }
            if matches(item) {
                return Some(item);
            }
            item = self.next(index, item);
        }
        None
    }

    /// How many items of the chain of `hash` match, counted up to `most`.
    pub(crate) fn index_count(
        &self,
        index: Index,
        hash: u32,
        most: usize,
        matches: impl Fn(u32) -> bool,
    ) -> usize {
        let count = std::cell::Cell::new(0);
        let is_last = |item| {
            count.set(count.get() + usize::from(matches(item)));
            count.get() >= most
        };
        let _ = self.index_find(index, hash, is_last);
        count.get()
    }

    /// As far as a chain is walked by who changes it: to its end, as what is given back must be in
    /// none. If the memory is damaged there is none, so to as many items as there can be.
    fn longest(&self, index: Index) -> usize {
        let capacity = &self.layout.capacity;
        let names = capacity.heap_words / dentries::NAME;
        let most = if index == Index::Name { names } else { capacity.nodes };
        let items = self.header(INDICES + 2 * index as usize + 1);
        usize::try_from(items).map_or(most, |items| items.min(most)).max(MAX_CHAIN)
    }

    /// Adds `item`, whose hash and key are already in place.
    pub(crate) fn index_insert(&self, index: Index, item: u32) {
        let header = INDICES + 2 * index as usize;
        let buckets = self.buckets(index);
        let count = self.header(header + 1).saturating_add(1);
        self.put(header + 1, count);
        if count > buckets * LOAD && (buckets as usize) < self.layout.capacity.nodes {
            self.split(index, buckets);
        }
        let bucket = Self::bucket(self.buckets(index), self.hash_of(index, item));
        self.set_next(index, item, self.head(index, bucket));
        self.set_head(index, bucket, item);
    }

    /// Takes `item` out, before its key changes.
    pub(crate) fn index_remove(&self, index: Index, item: u32) {
        let header = INDICES + 2 * index as usize;
        let bucket = Self::bucket(self.buckets(index), self.hash_of(index, item));
        let mut previous = 0;
        let mut at = self.head(index, bucket);
        for _ in 0..self.longest(index) {
            if at == 0 {
                return;
            }
            let next = self.next(index, at);
            if at == item {
                if previous == 0 {
                    self.set_head(index, bucket, next);
                } else {
                    self.set_next(index, previous, next);
                }
                self.put(header + 1, self.header(header + 1).saturating_sub(1));
                return;
            }
            (previous, at) = (at, next);
        }
    }

    fn ends_within(&self, index: Index, mut item: u32, most: usize) -> bool {
        for _ in 0..most {
            if item == 0 {
                return true;
            }
            item = self.next(index, item);
        }
        item == 0
    }

    /// Splits the bucket whose turn it is: some of its items go to the new bucket `buckets`. One
    /// that is too long for one change is left, and so is the table as large as it is.
    fn split(&self, index: Index, buckets: u64) {
        let from = buckets - (1u64 << buckets.ilog2());
        // Each item costs a pair of the undo area, which more is to go into.
        let most = MAX_CHAIN.min(self.layout.undo_pairs / 2);
        let mut item = self.head(index, from);
        if !self.ends_within(index, item, most) {
            return;
        }
        let (mut stay, mut go) = (0, 0);
        for _ in 0..most {
            if item == 0 {
                break;
            }
            let next = self.next(index, item);
            if Self::bucket(buckets + 1, self.hash_of(index, item)) == from {
                self.set_next(index, item, stay);
                stay = item;
            } else {
                self.set_next(index, item, go);
                go = item;
            }
            item = next;
        }
        self.set_head(index, from, stay);
        self.set_head(index, buckets, go);
        self.put(INDICES + 2 * index as usize, buckets + 1);
    }
}

/// A hash of `bytes` under `seed`; not for hostile keys, chains are bounded instead.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u32 {
    const K: u64 = 0x517c_c1b7_2722_0a95;
    let mut hash = seed.wrapping_mul(K);
    let (whole, rest) = bytes.as_chunks::<8>();
    for chunk in whole {
        hash = (hash.rotate_left(5) ^ u64::from_ne_bytes(*chunk)).wrapping_mul(K);
    }
    if !rest.is_empty() {
        hash = (hash.rotate_left(5) ^ tail(rest)).wrapping_mul(K);
    }
    let hash = hash ^ bytes.len() as u64;
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    high(mixed) ^ low(pair(0, low(mixed)))
}
