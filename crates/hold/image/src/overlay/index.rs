//! A side's index: open addressing, from pages of the image to pages of the pool.
//!
//! A search looks at a place that has most often left the processor's caches if the index is large.
//! So an epoch begins with a small one, and goes on to the next, of twice the size, whenever it is
//! half full; they lie one behind the other.
//!
//! An entry is two words: `stamp (32 bits) | mask (8) | page of the pool (24)`, and the page of the
//! image. Nothing is ever taken out but by a new stamp, so a search ends at the first entry of
//! another one. Four pages that follow each other in the image have entries that do so, most often:
//! one cache line.

use super::area::Overlay;
use super::capacity::{ENTRY_WORDS, PAGE_WORDS};
use super::epochs::{Side, mix};
use belay_memory::Memory;

/// An entry that is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Its first word.
    at: usize,
    stamp: u32,
    /// Page of the pool; within it.
    pub(super) slot: usize,
    /// The sectors that are held.
    pub(super) mask: u8,
}

/// The entry of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum IndexEntry {
    /// In use.
    Held(Held),
    /// Not in the index; its entry would start at this word.
    Free(usize),
    /// Not in the index, which has no room: somebody has scribbled over it.
    Nowhere,
}

impl<M: Memory> Overlay<'_, M> {
    /// Looks for page `page` of the image.
    #[inline]
    pub(super) fn find(&self, side: &Side, page: u64) -> IndexEntry {
        let home = (mix(0, page >> 2) as usize) << 2 | (page & 3) as usize;
        for step in 0..side.entries {
            let at = side.index + (home.wrapping_add(step) & (side.entries - 1)) * ENTRY_WORDS;
            let [word, found] = self.memory.load_fields(at, [0, 1]);
            let held = self.held(at, word);
            if held.stamp != side.stamp || side.stamp == 0 {
                return IndexEntry::Free(at);
            }
            if found == page && held.slot < self.capacity.bounded() {
                return IndexEntry::Held(held);
            }
        }
        IndexEntry::Nowhere
    }

    /// The index with `entries` entries, of those that begin at word `first`: its first word, and
    /// its entries. The first one if there is none such.
    #[inline]
    pub(super) fn index_of(&self, first: usize, entries: usize) -> (usize, usize) {
        let least = self.capacity.first_entries();
        let there =
            entries.is_power_of_two() && (least..=self.capacity.entries()).contains(&entries);
        let entries = if there { entries } else { least };
        // As many entries as those before it have: least + 2 least + ... + entries / 2.
        (first + (entries - least) * ENTRY_WORDS, entries)
    }

    /// First word of a side's first index.
    pub(super) fn first_index(&self, side: &Side) -> usize {
        side.index - (side.entries - self.capacity.first_entries()) * ENTRY_WORDS
    }

    /// Whether a further entry wants a larger index, and there is one.
    #[inline]
    pub(super) fn is_crowded(&self, side: &Side) -> bool {
        side.used >= side.entries / 2 && side.entries < self.capacity.entries()
    }

    /// Goes on to the next index, in which nothing is of this stamp. Only for the current side,
    /// which is dropped as a whole by who comes after a death in here.
    #[cold]
    pub(super) fn grow(&self, side: &mut Side) {
        let mut next = *side;
        (next.index, next.entries) = self.index_of(self.first_index(side), side.entries * 2);
        for number in 0..side.entries {
            if let Some((page, held)) = self.entry(side, number)
                && let IndexEntry::Free(at) = self.find(&next, page)
            {
                self.memory.store(at + 1, page);
                self.set_mask(&Held { at, ..held }, held.mask);
            }
        }
        *side = next;
        self.put_side(side);
    }

    /// Entry number `number`, with the page of the image that it is of.
    #[inline]
    pub(super) fn entry(&self, side: &Side, number: usize) -> Option<(u64, Held)> {
        let at = side.index + number * ENTRY_WORDS;
        let [word, page] = self.memory.load_fields(at, [0, 1]);
        let held = self.held(at, word);
        let lives = held.stamp == side.stamp && side.stamp != 0;
        (lives && held.slot < self.capacity.bounded()).then_some((page, held))
    }

    /// What a side holds of a page, and where that lies in the memory.
    #[inline]
    pub(super) fn sectors(&self, side: &Side, page: u64) -> (u8, usize) {
        if side.used == 0 || !self.may_hold(side, page) {
            return (0, 0);
        }
        match self.find(side, page) {
            IndexEntry::Held(held) => (held.mask, self.data(side, &held)),
            _ => (0, 0),
        }
    }

    /// First word of an entry's page in the pool.
    #[inline]
    pub(super) fn data(&self, side: &Side, held: &Held) -> usize {
        side.pool + held.slot * PAGE_WORDS
    }

    /// Makes an entry for `page` at word `at`, with the next page of the pool, holding nothing yet.
    #[inline]
    pub(super) fn insert(&self, side: &mut Side, at: usize, page: u64) -> Held {
        let held = Held { at, stamp: side.stamp, slot: side.used, mask: 0 };
        self.memory.store(at + 1, page);
        self.set_mask(&held, 0);
        self.note_held(side, page);
        side.used += 1;
        self.put_used(side);
        held
    }

    /// Sets which sectors an entry holds.
    #[inline]
    pub(super) fn set_mask(&self, held: &Held, mask: u8) {
        let word = u64::from(held.stamp) << 32 | u64::from(mask) << 24 | held.slot as u64;
        self.memory.store(held.at, word);
    }

    #[inline]
    fn held(&self, at: usize, word: u64) -> Held {
        let slot = (word & 0xff_ffff) as usize;
        Held { at, stamp: (word >> 32) as u32, slot, mask: (word >> 24) as u8 }
    }
}
