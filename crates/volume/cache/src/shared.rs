//! The memory of a cache.

use crate::layout::Layout;
use belay_memory::Memory;

/// The memory of a cache, as all of its processes know it.
#[derive(Clone, Debug)]
pub struct Shared<M> {
    pub(crate) memory: M,
    pub(crate) layout: Layout,
}

impl<M: Memory> Shared<M> {
    /// A memory of zeros, or one that others use.
    pub fn new(memory: M, layout: Layout) -> Self {
        Self { memory, layout }
    }
}
