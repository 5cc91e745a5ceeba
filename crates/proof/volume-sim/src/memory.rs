//! Memory that outlives processes. Each process has it through a view of its own, and dies at a store.

use belay_memory::Memory;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A process's view of the memory.
#[derive(Clone, Debug)]
pub struct SimMemory {
    words: Rc<RefCell<Vec<u64>>>,
    /// How many stores the process has left, if it dies.
    left: Rc<Cell<Option<u64>>>,
}

impl SimMemory {
    /// A memory of zeros, with the view of a first process.
    pub fn new(words: usize) -> Self {
        Self { words: Rc::new(RefCell::new(vec![0; words])), left: Rc::default() }
    }

    /// The view of another process.
    pub fn another(&self) -> Self {
        Self { words: Rc::clone(&self.words), left: Rc::default() }
    }

    /// Has the process die behind so many stores: later ones do nothing.
    pub fn dies_after(&self, stores: Option<u64>) {
        self.left.set(stores);
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.left.get() == Some(0)
    }

    /// A power failure: nothing is left.
    pub fn clear(&self) {
        self.words.borrow_mut().fill(0);
    }

    /// Flips a bit, as a process gone mad does.
    pub fn flip(&self, at: usize, bit: u32) {
        if let Some(word) = self.words.borrow_mut().get_mut(at) {
            *word ^= 1 << bit;
        }
    }

    /// One store of the process: whether it is made.
    fn makes_store(&self) -> bool {
        match self.left.get() {
            None => true,
            Some(0) => false,
            Some(left) => {
                self.left.set(Some(left - 1));
                true
            }
        }
    }
}

impl Memory for SimMemory {
    fn load(&self, at: usize) -> u64 {
        self.words.borrow().get(at).copied().unwrap_or(0)
    }

    fn store(&self, at: usize, value: u64) {
        if self.makes_store()
            && let Some(word) = self.words.borrow_mut().get_mut(at)
        {
            *word = value;
        }
    }

    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found != old {
            return Err(found);
        }
        // Nobody sees what a dead process believes.
        self.store(at, new);
        Ok(found)
    }

    fn add(&self, at: usize, by: u64) -> u64 {
        let found = self.load(at);
        self.store(at, found.wrapping_add(by));
        found
    }
}
