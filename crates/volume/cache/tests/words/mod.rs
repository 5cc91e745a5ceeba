//! Memory that the threads of a test share.

use belay_memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Words of memory.
pub struct Words(Vec<AtomicU64>);

impl Words {
    /// So many of them, all zero.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Memory for Words {
    fn load(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(SeqCst))
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value, SeqCst);
        }
    }

    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.0.get(at).map_or(Err(!old), |word| word.compare_exchange(old, new, SeqCst, SeqCst))
    }

    fn add(&self, at: usize, by: u64) -> u64 {
        self.0.get(at).map_or(0, |word| word.fetch_add(by, SeqCst))
    }
}
