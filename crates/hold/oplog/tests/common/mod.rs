//! A memory of which every store is remembered, so that a death at any of them can be looked at.
#![allow(dead_code, missing_docs, reason = "each test uses its part")]

use belay_memory::Memory;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

pub mod fs;
pub mod hostile;
pub mod short;
pub mod world;

struct Inner {
    words: RefCell<Vec<u64>>,
    stores: RefCell<Vec<(usize, u64, u64)>>,
    remembers: Cell<bool>,
    touched: RefCell<BTreeSet<usize>>,
}

#[derive(Clone)]
pub struct Sim(Rc<Inner>);

impl Sim {
    pub fn new(words: usize) -> Self {
        Self(Rc::new(Inner {
            words: RefCell::new(vec![0; words]),
            stores: RefCell::default(),
            remembers: Cell::new(false),
            touched: RefCell::default(),
        }))
    }

    /// Another memory with the same content.
    pub fn copy(&self) -> Self {
        let copy = Self::new(0);
        *copy.0.words.borrow_mut() = self.0.words.borrow().clone();
        copy
    }

    /// Remembers stores from now on.
    pub fn mark(&self) {
        self.0.stores.borrow_mut().clear();
        self.0.remembers.set(true);
    }

    /// The stores since [`Sim::mark`], as (word, old, new).
    pub fn take(&self) -> Vec<(usize, u64, u64)> {
        self.0.remembers.set(false);
        std::mem::take(&mut self.0.stores.borrow_mut())
    }

    /// Undoes them.
    pub fn rewind(&self) {
        for (at, old, _) in self.take().into_iter().rev() {
            self.0.words.borrow_mut()[at] = old;
        }
    }

    pub fn words(&self) -> usize {
        self.0.words.borrow().len()
    }

    /// Blocks of 512 words that were ever stored to.
    pub fn touched(&self) -> usize {
        self.0.touched.borrow().len()
    }
}

impl Memory for Sim {
    fn load(&self, at: usize) -> u64 {
        self.0.words.borrow().get(at).copied().unwrap_or(0)
    }
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.0.words.borrow_mut().get_mut(at) {
            let old = std::mem::replace(word, value);
            self.0.touched.borrow_mut().insert(at / 512);
            if self.0.remembers.get() {
                self.0.stores.borrow_mut().push((at, old, value));
            }
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
