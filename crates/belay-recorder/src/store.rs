//! The store: records in shared memory whose every change is all or nothing.
//!
//! Invariants
//! * A change is a series of word stores between [`Store::begin`] and [`Store::commit`]. Each
//!   store is preceded by a record of the old value in the undo area; `commit` empties that area
//!   with one store. A daemon killed in between leaves a non-empty undo area, and
//!   [`Store::recover`] puts the old values back. So every change either happened or did not.
//! * Only one thread makes changes at a time (the session's lock); what is settled without it
//!   ([`crate::record_reply`], [`crate::free_slot`]) is one slot's alone, whose request nobody else
//!   has. Process death, not power loss, is what it guards against, so program order is all that
//!   it needs.
//! * Nothing moves: a record keeps its place from its birth to its end.

use crate::layout::Layout;
use crate::memory::{Memory, high, low, pair, tail};
use std::cell::Cell;

pub(crate) const NODE_TOP: usize = 0;
pub(crate) const NODE_FREE: usize = 1;
pub(crate) const HANDLE_TOP: usize = 2;
pub(crate) const HANDLE_FREE: usize = 3;
pub(crate) const HEAP_TOP: usize = 4;
pub(crate) const LOCKS: usize = 5;
pub(crate) const HIDDEN_SERIAL: usize = 6;
pub(crate) const HIDDEN: usize = 7;
pub(crate) const SLOT_TOP: usize = 8;
pub(crate) const NODES_LIVE: usize = 9;
pub(crate) const HANDLES_LIVE: usize = 10;
pub(crate) const INDICES: usize = 16;
pub(crate) const HEAP_CLASSES: usize = 32;

/// See [`Store`].
#[derive(Debug, Default)]
pub(crate) struct Tops {
    pub(crate) nodes: Cell<u64>,
    pub(crate) handles: Cell<u64>,
    pub(crate) slots: Cell<u64>,
}

/// The session's records. See the module's invariants.
#[derive(Debug)]
pub struct Store<M> {
    pub(crate) memory: M,
    pub(crate) layout: Layout,
    undone: Cell<usize>,
    /// Tops as last read. They only grow while this store lives, so a number below one of these is
    /// below the top, without a look at the header's page.
    pub(crate) tops: Tops,
    /// The change under way has given a record back, whose old content an undo would need.
    pub(crate) freed: Cell<bool>,
}

impl<M: Memory> Store<M> {
    /// A store over `memory`, which another process may have left in the middle of a change:
    /// call [`Store::recover`] before using it for writing.
    pub fn new(memory: M, layout: Layout) -> Self {
        Self {
            memory,
            layout,
            undone: Cell::new(0),
            tops: Tops::default(),
            freed: Cell::new(false),
        }
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
        self.tops.nodes.set(0);
        self.tops.handles.set(0);
        self.tops.slots.set(0);
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
        self.replace(at, self.memory.load(at), value);
    }

    /// [`Store::set`] for a word that is known to be `old`.
    #[inline]
    fn replace(&self, at: usize, old: u64, value: u64) {
        if old == value {
            return; // nothing to do, so nothing to undo
        }
        let pairs = self.undone.get();
        if pairs < self.layout.undo_pairs {
            let undo = self.layout.undo;
            self.memory.store_words(undo + 1 + 2 * pairs, [at as u64, old]);
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
        if !self.freed.get() {
            return self.memory.store_bytes(at, bytes);
        }
        let (whole, rest) = bytes.as_chunks::<8>();
        for (i, chunk) in whole.iter().enumerate() {
            self.set(at + i, u64::from_ne_bytes(*chunk));
        }
        if !rest.is_empty() {
            self.set(at + whole.len(), tail(rest));
        }
    }

    pub(crate) fn set_high(&self, at: usize, value: u32) {
        let old = self.word(at);
        self.replace(at, old, pair(value, low(old)));
    }

    pub(crate) fn set_low(&self, at: usize, value: u32) {
        let old = self.word(at);
        self.replace(at, old, pair(high(old), value));
    }

    /// Whether `number` is below the top in `field` of the header, and below `capacity`.
    #[inline]
    pub(crate) fn below_top(
        &self,
        number: u32,
        top: &Cell<u64>,
        field: usize,
        most: usize,
    ) -> bool {
        let number = u64::from(number);
        if number >= top.get() {
            top.set(self.header(field).min(most as u64));
        }
        number < top.get()
    }

    #[inline]
    pub(crate) fn header(&self, field: usize) -> u64 {
        self.word(self.layout.store + field)
    }

    pub(crate) fn put(&self, field: usize, value: u64) {
        self.set(self.layout.store + field, value);
    }

    /// Adds to a header word as part of the change under way.
    #[inline]
    pub(crate) fn adjust(&self, field: usize, by: i64) {
        self.put(field, self.header(field).saturating_add_signed(by));
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
