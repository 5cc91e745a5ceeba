//! Memory that outlives processes. Each process has it through a view of its own, and dies at a
//! store.

use crate::sabotage::Sabotage;
use belay_cache::Layout;
use belay_cache::layout::{BLOCKS, MOUNT_FIRST, PAIRS};
use belay_memory::Memory;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A process's view of the memory.
#[derive(Clone, Debug)]
pub struct SimMemory {
    words: Rc<RefCell<Vec<u64>>>,
    /// How many stores the process has left, if it dies.
    left: Rc<Cell<Option<u64>>>,
    /// Where the process has stored something, if that is noted.
    trace: Option<Rc<RefCell<Vec<usize>>>>,
    sabotage: Option<(Sabotage, Layout)>,
}

/// One of so many transactions is dropped.
const DROPPED: u64 = 20;

impl SimMemory {
    /// A memory of zeros, with the view of a first process.
    pub fn new(words: usize) -> Self {
        Self::of(vec![0; words])
    }

    /// One that says this, with the view of a first process.
    pub fn of(words: Vec<u64>) -> Self {
        let words = Rc::new(RefCell::new(words));
        Self { words, left: Rc::default(), trace: None, sabotage: None }
    }

    /// The view of another process.
    pub fn another(&self) -> Self {
        let words = Rc::clone(&self.words);
        Self { words, left: Rc::default(), trace: None, sabotage: None }
    }

    /// Another memory that is as this one is now, with the view of a first process.
    #[must_use]
    pub fn copy(&self) -> Self {
        let words = Rc::new(RefCell::new(self.words.borrow().clone()));
        Self { words, left: Rc::default(), trace: None, sabotage: None }
    }

    /// The same process, of which it is noted from now on where it stores something.
    #[must_use]
    pub fn traced(self) -> Self {
        Self { trace: Some(Rc::default()), ..self }
    }

    /// Where the process has stored something, in that order.
    pub fn trace(&self) -> Vec<usize> {
        self.trace.as_ref().map_or_else(Vec::new, |trace| trace.borrow().clone())
    }

    /// The same process with something wrong in it.
    #[must_use]
    pub fn sabotaged(self, sabotage: Option<Sabotage>, layout: Layout) -> Self {
        Self { sabotage: sabotage.map(|sabotage| (sabotage, layout)), ..self }
    }

    fn does(&self, wrong: Sabotage) -> bool {
        self.sabotage.is_some_and(|(sabotage, _)| sabotage == wrong)
    }

    /// Whether a transaction that is published is to be dropped.
    fn drops(&self, at: usize, new: u64) -> bool {
        let Some((Sabotage::DroppedEntry, layout)) = self.sabotage else { return false };
        (layout.slots..layout.answers).contains(&at) && new.is_multiple_of(DROPPED)
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
        match at {
            BLOCKS | PAIRS if self.does(Sabotage::NoCredits) => return 1 << 30,
            MOUNT_FIRST if self.does(Sabotage::DoneTwice) => return u64::MAX,
            _ => {}
        }
        self.words.borrow().get(at).copied().unwrap_or(0)
    }

    fn store(&self, at: usize, value: u64) {
        if self.makes_store()
            && let Some(word) = self.words.borrow_mut().get_mut(at)
        {
            *word = value;
        }
        if let Some(trace) = &self.trace {
            trace.borrow_mut().push(at);
        }
    }

    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        let words = self.words.borrow();
        for (chunk, at) in out.chunks_mut(8).zip(at..) {
            let word = words.get(at).copied().unwrap_or(0).to_ne_bytes();
            chunk.copy_from_slice(word.get(..chunk.len()).unwrap_or_default());
        }
    }

    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found != old {
            return Err(found);
        }
        // Nobody sees what a dead process believes.
        if !self.drops(at, new) {
            self.store(at, new);
        }
        Ok(found)
    }

    fn add(&self, at: usize, by: u64) -> u64 {
        let found = self.load(at);
        self.store(at, found.wrapping_add(by));
        found
    }
}
