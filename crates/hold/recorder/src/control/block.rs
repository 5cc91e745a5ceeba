//! The view of the control block, and strings in it.

use crate::layout::Layout;
use belay_memory::Memory;

/// A view of the control block.
#[derive(Clone, Copy, Debug)]
pub struct Control<'m, M> {
    pub(super) memory: &'m M,
    pub(super) layout: Layout,
}

impl<'m, M: Memory> Control<'m, M> {
    /// Looks at the control block of `memory`.
    #[inline]
    pub fn new(memory: &'m M, layout: Layout) -> Self {
        Self { memory, layout }
    }

    /// Stores a string of up to `max_words` words: none while it is being stored.
    pub(super) fn put(&self, at: usize, max_words: usize, bytes: &[u8]) {
        let bytes = bytes.get(..max_words * 8).unwrap_or(bytes);
        self.memory.store(at, 0);
        self.memory.store_bytes(at + 1, bytes);
        self.memory.store(at, bytes.len() as u64);
    }

    /// A string that [`Control::put`] stored.
    pub(super) fn take(&self, at: usize, max_words: usize) -> Vec<u8> {
        let mut bytes = vec![0; (self.memory.load(at) as usize).min(max_words * 8)];
        self.memory.load_bytes(at + 1, &mut bytes);
        bytes
    }
}
