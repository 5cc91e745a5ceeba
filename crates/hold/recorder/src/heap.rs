//! Blocks of 16 to 1088 bytes for names, locks and directory streams.

use crate::store::{HEAP_CLASSES, HEAP_TOP, Store};
use belay_memory::Memory;

/// Words in a heap unit.
pub(crate) const UNIT_WORDS: usize = 2;
/// The largest block, in units.
pub(crate) const MAX_UNITS: usize = 68;

impl<M: Memory> Store<M> {
    /// Takes a block of at least `bytes` bytes; gives its unit number, never 0.
    /// `None` if it is too large or the heap is full.
    pub(crate) fn alloc(&self, bytes: usize) -> Option<u32> {
        let units = bytes.div_ceil(UNIT_WORDS * 8).max(1);
        if units > MAX_UNITS {
            return None;
        }
        let class = HEAP_CLASSES + units;
        let free = self.header(class);
        if free != 0 {
            let block = u32::try_from(free).ok()?;
            self.put(class, self.word(self.block(block)));
            return Some(block);
        }
        let top = self.header(HEAP_TOP);
        if top > ((self.layout.capacity.heap_words / UNIT_WORDS).saturating_sub(units)) as u64 {
            return None;
        }
        self.put(HEAP_TOP, top + units as u64);
        u32::try_from(top).ok()
    }

    /// Whether `blocks` blocks of `bytes` bytes can be had.
    pub(crate) fn has_room(&self, bytes: usize, blocks: usize) -> bool {
        let units = bytes.div_ceil(UNIT_WORDS * 8).max(1);
        let mut missing = blocks;
        let mut free = self.header(HEAP_CLASSES + units.min(MAX_UNITS));
        while let (1.., Ok(block @ 1..)) = (missing, u32::try_from(free)) {
            missing -= 1;
            free = self.word(self.block(block));
        }
        let needed = missing.saturating_mul(units);
        let units = (self.layout.capacity.heap_words / UNIT_WORDS) as u64;
        missing == 0 || self.header(HEAP_TOP).saturating_add(needed as u64) <= units
    }

    /// Gives a block of `bytes` bytes back.
    pub(crate) fn free(&self, block: u32, bytes: usize) {
        self.free_chain(block, block, bytes);
    }

    /// Gives blocks of `bytes` bytes back that are chained by their first words, as those on the
    /// free list are.
    pub(crate) fn free_chain(&self, first: u32, last: u32, bytes: usize) {
        let class = HEAP_CLASSES + bytes.div_ceil(UNIT_WORDS * 8).clamp(1, MAX_UNITS);
        self.freed.set(true);
        self.set(self.block(last), self.header(class));
        self.put(class, u64::from(first));
    }

    /// Word offset of a block.
    #[inline]
    pub(crate) fn block(&self, block: u32) -> usize {
        self.layout.heap + block as usize * UNIT_WORDS
    }
}
