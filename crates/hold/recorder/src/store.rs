//! The store: records in shared memory whose every change is all or nothing.
//!
//! Invariants
//! * A change is what happens between [`Store::begin`] and [`Store::commit`]. Either it happened or
//!   it did not, whenever a daemon is killed ([`UndoLog`]): [`Store::recover`] takes back what is
//!   half done.
//! * Only one thread makes changes at a time (the session's lock); what is settled without it
//!   ([`crate::record_reply`], [`crate::free_slot`]) is one slot's alone, whose request nobody else
//!   has.
//! * Nothing moves: a record keeps its place from its birth to its end.

use crate::layout::Layout;
use belay_memory::words::{high, low, pair, tail};
use belay_memory::{Memory, Overflow, UndoLog};
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
    undo: UndoLog,
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
            undo: UndoLog::new(layout.undo, layout.undo_pairs),
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
    ///
    /// # Errors
    /// If that change outgrew the undo area: the records may be half changed, and nobody is to go
    /// on with them.
    pub fn recover(&self) -> Result<usize, Overflow> {
        let restored = self.undo.recover(&self.memory)?;
        self.freed.set(false);
        self.tops.nodes.set(0);
        self.tops.handles.set(0);
        self.tops.slots.set(0);
        Ok(restored)
    }

    /// Starts a change.
    pub fn begin(&self) {
        debug_assert!(self.undo.is_empty(), "changes do not nest");
    }

    /// Makes the change since `begin` final.
    #[inline]
    pub fn commit(&self) {
        self.undo.commit(&self.memory);
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
        self.undo.replace(&self.memory, at, old, value);
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
