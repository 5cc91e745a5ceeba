//! A side's filter: a bit for each 64 pages of the image, set if the side holds one of them.
//!
//! What a search in the index looks at has most often left the processor's caches; the filter stays
//! there, and most of what is read from an image was not written lately. Parts of a large image
//! share bits.

use super::area::Overlay;
use super::capacity::FILTER_WORDS;
use super::epochs::Side;
use belay_memory::Memory;

/// Pages of one bit, as a power of two.
const PAGES: u32 = 6;

/// Word and bit of a page.
#[inline]
fn place(page: u64) -> (usize, u64) {
    let bit = page >> PAGES;
    ((bit >> 6) as usize % FILTER_WORDS, 1 << (bit & 63))
}

impl<M: Memory> Overlay<'_, M> {
    /// Whether a side may hold something of a page. If not, it does not.
    #[inline]
    pub(super) fn may_hold(&self, side: &Side, page: u64) -> bool {
        let (word, bit) = place(page);
        self.memory.load(side.filter + word) & bit != 0
    }

    /// Notes that the current side holds something of a page.
    #[inline]
    pub(super) fn note_held(&self, side: &Side, page: u64) {
        let (word, bit) = place(page);
        let old = self.memory.load(side.filter + word);
        if old & bit == 0 {
            self.memory.store(side.filter + word, old | bit);
        }
    }

    /// A side holds nothing any more.
    pub(super) fn clear_filter(&self, side: &Side) {
        (side.filter..side.filter + FILTER_WORDS).for_each(|at| self.memory.store(at, 0));
    }
}
