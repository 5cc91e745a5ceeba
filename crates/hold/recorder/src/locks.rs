//! Locks that a daemon holds for applications: POSIX, open-file-description and flock.
//!
//! One list for the whole mount: locks are few, and after a crash all are taken again at once.

use crate::store::{LOCKS, Store};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

const NEXT: usize = 0; // next | 1 for flock
const HANDLE: usize = 1;
const OWNER: usize = 2;
const START: usize = 3;
const END: usize = 4;
const TYPE: usize = 5; // type | pid
const NODE: usize = 6;
const BYTES: usize = 56;
const MAX_LOCKS: usize = 1 << 16;

/// A lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Key of the node that it is on.
    pub node: u64,
    /// Key of the handle that it was taken through.
    pub handle: u64,
    /// The kernel's lock owner.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// F_RDLCK or F_WRLCK.
    pub kind: u32,
    /// Process id of the owner.
    pub pid: u32,
    /// An flock(2) lock: whole file, owned by the handle.
    pub flock: bool,
}

/// F_RDLCK of fcntl(2).
pub const F_RDLCK: u32 = 0;
/// F_WRLCK of fcntl(2).
pub const F_WRLCK: u32 = 1;
/// F_UNLCK of fcntl(2).
pub const F_UNLCK: u32 = 2;

impl<M: Memory> Store<M> {
    /// All locks.
    pub fn locks(&self) -> Vec<Lock> {
        self.lock_items().into_iter().map(|item| self.lock(item)).collect()
    }

    /// Applies a granted SETLK: the owner's locks in the range are replaced; F_UNLCK removes.
    /// `false`, and nothing is changed, if the store is full, or has [`Store::most_locks`].
    pub fn lock_apply(&self, new: Lock) -> bool {
        let items = self.lock_items();
        let count = items.len();
        let overlapping: Vec<_> = items
            .into_iter()
            .map(|item| (item, self.lock(item)))
            .filter(|(_, old)| {
                (old.node, old.owner, old.flock) == (new.node, new.owner, new.flock)
                    && old.start <= new.end
                    && new.start <= old.end
            })
            .collect();
        let parts = overlapping
            .iter()
            .map(|(_, old)| usize::from(old.start < new.start) + usize::from(old.end > new.end));
        let needed = parts.sum::<usize>() + usize::from(new.kind != F_UNLCK);
        let more = needed.saturating_sub(overlapping.len());
        if more > 0 && count + more > self.most_locks() || !self.has_room(BYTES, more) {
            return false;
        }
        let mut ok = true;
        for (item, old) in overlapping {
            self.lock_remove(item);
            if old.start < new.start {
                ok &= self.lock_add(Lock { end: new.start - 1, ..old });
            }
            if old.end > new.end {
                ok &= self.lock_add(Lock { start: new.end + 1, ..old });
            }
        }
        if new.kind != F_UNLCK {
            ok &= self.lock_add(new);
        }
        ok
    }

    /// How many locks can be on record: all of them can be removed in one change.
    pub fn most_locks(&self) -> usize {
        /// Pairs of the undo area that the removal of one takes, and one more.
        const PAIRS: usize = 4;
        MAX_LOCKS.min(self.layout.undo_pairs / PAIRS)
    }

    /// Removes the locks that `gone` picks.
    pub fn locks_remove(&self, gone: impl Fn(&Lock) -> bool) {
        for item in self.lock_items() {
            if gone(&self.lock(item)) {
                self.lock_remove(item);
            }
        }
    }

    /// Whether there is any lock at all.
    #[inline]
    pub fn has_locks(&self) -> bool {
        self.header(LOCKS) != 0
    }

    fn lock_items(&self) -> Vec<u32> {
        let mut items = Vec::new();
        let mut item = low(self.header(LOCKS));
        while item != 0 && items.len() < MAX_LOCKS {
            items.push(item);
            item = high(self.word(self.block(item) + NEXT));
        }
        items
    }

    fn lock(&self, item: u32) -> Lock {
        let at = self.block(item);
        let kind = self.word(at + TYPE);
        Lock {
            node: self.word(at + NODE),
            handle: self.word(at + HANDLE),
            owner: self.word(at + OWNER),
            start: self.word(at + START),
            end: self.word(at + END),
            kind: high(kind),
            pid: low(kind),
            flock: low(self.word(at + NEXT)) != 0,
        }
    }

    fn lock_add(&self, lock: Lock) -> bool {
        let Some(item) = self.alloc(BYTES) else { return false };
        let at = self.block(item);
        self.set(at + NEXT, pair(low(self.header(LOCKS)), u32::from(lock.flock)));
        self.set(at + HANDLE, lock.handle);
        self.set(at + OWNER, lock.owner);
        self.set(at + START, lock.start);
        self.set(at + END, lock.end);
        self.set(at + TYPE, pair(lock.kind, lock.pid));
        self.set(at + NODE, lock.node);
        self.put(LOCKS, u64::from(item));
        true
    }

    fn lock_remove(&self, item: u32) {
        let next = high(self.word(self.block(item) + NEXT));
        if low(self.header(LOCKS)) == item {
            self.put(LOCKS, u64::from(next));
        } else {
            for other in self.lock_items() {
                let link = self.block(other) + NEXT;
                if high(self.word(link)) == item {
                    self.set_high(link, next);
                    break;
                }
            }
        }
        self.free(item, BYTES);
    }
}
