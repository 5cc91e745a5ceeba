//! The store: records in shared memory whose every change is all or nothing.
//!
//! Invariants
//! * A change is a series of word stores between [`Store::begin`] and [`Store::commit`]. Each
//!   store is preceded by a record of the old value in the undo area; `commit` empties that area
//!   with one store. A daemon killed in between leaves a non-empty undo area, and
//!   [`Store::recover`] puts the old values back. So every change either happened or did not.
//! * Only one thread changes the store at a time (the session's lock); process death, not power
//!   loss, is what it guards against, so program order is all that it needs.
//! * Nothing moves: a record keeps its place from its birth to its end.

use crate::layout::Layout;
use crate::memory::{Memory, high, low, pair};
use std::cell::Cell;

pub(crate) const NODE_TOP: usize = 0;
pub(crate) const NODE_FREE: usize = 1;
pub(crate) const HANDLE_TOP: usize = 2;
pub(crate) const HANDLE_FREE: usize = 3;
pub(crate) const HEAP_TOP: usize = 4;
pub(crate) const LOCKS: usize = 5;
pub(crate) const HIDDEN_SERIAL: usize = 6;
pub(crate) const HIDDEN: usize = 7;
pub(crate) const INDICES: usize = 16;
pub(crate) const HEAP_CLASSES: usize = 32;

/// The session's records. See the module's invariants.
#[derive(Debug)]
pub struct Store<M> {
    pub(crate) memory: M,
    pub(crate) layout: Layout,
    undone: Cell<usize>,
    /// The change under way has given a record back, whose old content an undo would need.
    pub(crate) freed: Cell<bool>,
}

impl<M: Memory> Store<M> {
    /// A store over `memory`, which another process may have left in the middle of a change:
    /// call [`Store::recover`] before using it for writing.
    pub fn new(memory: M, layout: Layout) -> Self {
        Self { memory, layout, undone: Cell::new(0), freed: Cell::new(false) }
    }

    /// Initialises a fresh store (all words zero) with the root node.
    pub fn format(&self) {
        self.put(NODE_TOP, 2);
        self.put(HANDLE_TOP, 1);
        self.put(HEAP_TOP, 1);
        self.format_indices();
        self.format_root();
        self.commit();
    }

    /// Whether nothing was ever put in.
    pub fn is_blank(&self) -> bool {
        self.header(NODE_TOP) == 0
    }

    /// Undoes a change that a dead process left half done. Gives the number of words restored.
    pub fn recover(&self) -> usize {
        let pairs = (self.memory.load(self.layout.undo) as usize).min(self.layout.undo_pairs);
        for i in (0..pairs).rev() {
            let at = self.layout.undo + 1 + 2 * i;
            self.memory.store(self.memory.load(at) as usize, self.memory.load(at + 1));
        }
        self.commit();
        pairs
    }

    /// Starts a change.
    pub fn begin(&self) {
        debug_assert_eq!(self.undone.get(), 0, "changes do not nest");
    }

    /// Makes the change since `begin` final.
    #[inline]
    pub fn commit(&self) {
        self.memory.store(self.layout.undo, 0);
        self.undone.set(0);
        self.freed.set(false);
    }

    /// Memory below the records.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The layout of the memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.memory.load(at)
    }

    /// Sets a word as part of the change under way.
    #[inline]
    pub(crate) fn set(&self, at: usize, value: u64) {
        let pairs = self.undone.get();
        if pairs < self.layout.undo_pairs {
            let undo = self.layout.undo;
            self.memory.store(undo + 1 + 2 * pairs, at as u64);
            self.memory.store(undo + 2 + 2 * pairs, self.memory.load(at));
            self.memory.store(undo, pairs as u64 + 1);
            self.undone.set(pairs + 1);
        } else {
            debug_assert!(false, "a change outgrew the undo area");
        }
        self.memory.store(at, value);
    }

    /// Sets a word of a record that is being made. What a free record holds means nothing, so
    /// there is nothing to undo, unless this very change freed it.
    #[inline]
    pub(crate) fn init(&self, at: usize, value: u64) {
        if self.freed.get() { self.set(at, value) } else { self.memory.store(at, value) }
    }

    /// Sets words of a record that is being made, from bytes.
    pub(crate) fn init_bytes(&self, at: usize, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            if let Some(head) = word.get_mut(..chunk.len()) {
                head.copy_from_slice(chunk);
            }
            self.init(at + i, u64::from_ne_bytes(word));
        }
    }

    pub(crate) fn set_high(&self, at: usize, value: u32) {
        self.set(at, pair(value, low(self.word(at))));
    }

    pub(crate) fn set_low(&self, at: usize, value: u32) {
        self.set(at, pair(high(self.word(at)), value));
    }

    pub(crate) fn header(&self, field: usize) -> u64 {
        self.word(self.layout.store + field)
    }

    pub(crate) fn put(&self, field: usize, value: u64) {
        self.set(self.layout.store + field, value);
    }

    /// A number never given before in this mount, for names of hidden files.
    pub fn next_hidden_serial(&self) -> u64 {
        let serial = self.header(HIDDEN_SERIAL).wrapping_add(1);
        self.put(HIDDEN_SERIAL, serial);
        serial
    }

    /// Whether a hidden name was ever given in this mount.
    pub fn ever_hidden(&self) -> bool {
        self.header(HIDDEN_SERIAL) != 0
    }
}
