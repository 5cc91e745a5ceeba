//! Which parts of the memory nothing on record lies in: what may be given back, whoever has touched
//! it.

use crate::index::Index;
use crate::layout::{HANDLE_WORDS, Layout, NODE_WORDS, SLOT_WORDS};
use crate::slots::Slot;
use crate::store::{HANDLE_TOP, HEAP_TOP, NODE_TOP, Store};
use belay_memory::Memory;
use std::ops::Range;

const PAGE: usize = 512;

impl<M: Memory> Store<M> {
    /// The words of indices, slots, handles, nodes, heap and copies that nothing on record lies in:
    /// whole pages. Only who knows that no daemon lives, and none is being started, may give them
    /// back. `copies`: whether requests are copied.
    ///
    /// What is on record is what the header says, which a daemon may have written; the areas are
    /// where they are whatever it says.
    pub fn spare(&self, copies: bool) -> Vec<Range<usize>> {
        let Layout { slots, handles, nodes, heap, copies: copied, effects, .. } = self.layout;
        let Layout { name_index, id_index, ino_index, .. } = self.layout;
        let heads = |index| self.buckets(index).div_ceil(2) as usize;
        let used = |field, words: usize| (self.header(field) as usize).saturating_mul(words);
        let slots_used = self.slots_used() as usize;
        let copy_words = if copies { slots_used * self.layout.copy_words } else { 0 };
        [
            (name_index, heads(Index::Name), id_index),
            (id_index, heads(Index::Id), ino_index),
            (ino_index, heads(Index::Ino), slots),
            (slots, slots_used * SLOT_WORDS, handles),
            (handles, used(HANDLE_TOP, HANDLE_WORDS), nodes),
            (nodes, used(NODE_TOP, NODE_WORDS), heap),
            (heap, used(HEAP_TOP, crate::heap::UNIT_WORDS), copied),
            (copied, copy_words, effects),
        ]
        .into_iter()
        .map(|(start, used, end)| behind(start, used, end))
        .filter(|range| !range.is_empty())
        .collect()
    }

    /// Words behind the first `used` ones of each slot's log, and of the one that has no slot:
    /// whole pages. `used` is asked for those that were ever in use.
    pub fn spare_of_logs(&self, used: impl Fn(Slot) -> usize) -> Vec<Range<usize>> {
        let Layout { logs, log_words, capacity, epochs, .. } = self.layout;
        let own = logs + capacity.slots * log_words;
        let one = |slot: u32, at: usize| behind(at, used(Slot(slot)), at + log_words);
        let known = self.slots_used();
        let with_slots = (0..known).map(|slot| one(slot, logs + slot as usize * log_words));
        let never = logs + known as usize * log_words..own;
        let last = behind(own, used(Slot(capacity.slots as u32)), epochs);
        with_slots.chain([never, last]).filter(|range| !range.is_empty()).collect()
    }
}

/// What is behind the page in which the first `used` words from `start` on end.
fn behind(start: usize, used: usize, end: usize) -> Range<usize> {
    let first = start.saturating_add(used).div_ceil(PAGE).saturating_mul(PAGE);
    first.min(end)..end
}
