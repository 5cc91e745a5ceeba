//! The overlay itself: where it lies, and how much it may take.

use super::capacity::{Capacity, PAGE};
use belay_memory::Memory;

/// The overlay of one image. See the module's invariants.
#[derive(Debug)]
pub struct Overlay<'m, M> {
    pub(super) memory: &'m M,
    pub(super) at: usize,
    pub(super) capacity: Capacity,
    /// Words that the indices of a side take.
    pub(super) index_words: usize,
    /// Pages that an epoch may take.
    pub(super) most: usize,
}

impl<M> Clone for Overlay<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Overlay<'_, M> {}

impl<'m, M: Memory> Overlay<'m, M> {
    /// The overlay that lies in `memory` from word `at` on, in [`Capacity::words`] words that were
    /// zeros at first. Each life of the daemon starts with [`Overlay::discard_current`].
    pub fn new(memory: &'m M, at: usize, capacity: Capacity) -> Self {
        // One without pages has no memory of its own: far outside, where loads give 0.
        let at = if capacity.pages == 0 { usize::MAX / 2 } else { at };
        let index_words = capacity.index_words();
        Self { memory, at, capacity, index_words, most: capacity.bounded() }
    }

    /// The same with room for so many bytes in an epoch, if that is less.
    #[must_use]
    #[inline]
    pub fn limited(self, bytes: u64) -> Self {
        let pages = usize::try_from(bytes / PAGE as u64).unwrap_or(usize::MAX);
        Self { most: self.most.min(pages), ..self }
    }
}
