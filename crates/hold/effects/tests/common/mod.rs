//! A memory that stops taking stores at a chosen one: its writer has died there.
#![allow(missing_docs, dead_code)]

use belay_memory::Memory;
use belay_recorder::{Capacity, Layout};
use std::cell::{Cell, RefCell};

pub struct Mortal {
    words: RefCell<Vec<u64>>,
    left: Cell<usize>,
    pub stores: Cell<usize>,
}

impl Mortal {
    pub fn new(layout: &Layout) -> Self {
        Self {
            words: RefCell::new(vec![0; layout.words]),
            left: Cell::new(usize::MAX),
            stores: Cell::new(0),
        }
    }

    /// Takes `stores` more stores, and none after that.
    pub fn dies_after(&self, stores: usize) {
        self.left.set(stores);
    }

    /// Takes stores again: another process has the memory now.
    pub fn revive(&self) {
        self.left.set(usize::MAX);
    }
}

impl Memory for Mortal {
    fn load(&self, at: usize) -> u64 {
        self.words.borrow().get(at).copied().unwrap_or(0)
    }
    fn store(&self, at: usize, value: u64) {
        self.stores.set(self.stores.get() + 1);
        if self.left.get() == 0 {
            return;
        }
        self.left.set(self.left.get() - 1);
        if let Some(word) = self.words.borrow_mut().get_mut(at) {
            *word = value;
        }
    }
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found == old {
            self.store(at, new);
            return Ok(found);
        }
        Err(found)
    }
    fn add(&self, at: usize, by: u64) -> u64 {
        let found = self.load(at);
        self.store(at, found.wrapping_add(by));
        found
    }
}

pub fn layout() -> Layout {
    Layout::new(Capacity {
        nodes: 8,
        handles: 4,
        slots: 3,
        heap_words: 64,
        copy_bytes: 0,
        effect_bytes: 16 << 10,
        epoch_bytes: 0,
    })
}
