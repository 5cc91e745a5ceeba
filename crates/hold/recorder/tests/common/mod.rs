//! A simulated memory in which a process can die at any store, and a walk over a store's areas
//! that goes by docs/recorder.md instead of by the crate's code.
#![allow(dead_code, missing_docs, reason = "each test uses its part")]

use belay_memory::Memory;
use belay_recorder::layout::NODE_WORDS;
use belay_recorder::{Capacity, Layout, Store};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

pub mod model;
pub mod readers;

/// The end of the simulated process.
struct Death;

struct Inner {
    words: Vec<Cell<u64>>,
    stores: Cell<usize>,
    loads: Cell<usize>,
    die_at: Cell<usize>,
    journal: RefCell<Vec<(usize, u64)>>,
    journaling: Cell<bool>,
}

/// Words that count their stores, can end the process at the n-th, and can be rewound.
#[derive(Clone)]
pub struct Sim(Rc<Inner>);

impl Sim {
    pub fn new(words: usize) -> Self {
        Self::from_words(vec![0; words])
    }

    pub fn from_words(words: Vec<u64>) -> Self {
        Self(Rc::new(Inner {
            words: words.into_iter().map(Cell::new).collect(),
            stores: Cell::new(0),
            loads: Cell::new(0),
            die_at: Cell::new(usize::MAX),
            journal: RefCell::default(),
            journaling: Cell::new(false),
        }))
    }

    /// Loads so far.
    pub fn loads(&self) -> usize {
        self.0.loads.get()
    }

    /// Forgets how to go back further than to this instant.
    pub fn mark(&self) {
        self.0.journal.borrow_mut().clear();
        self.0.journaling.set(true);
    }

    /// Makes all words what they were at the last `mark`.
    pub fn rewind(&self) {
        for (at, old) in self.0.journal.borrow_mut().drain(..).rev() {
            self.0.words[at].set(old);
        }
    }

    /// Runs `work` in a process of its own, which dies instead of its store number `die_at`
    /// (from 0). Gives what `work` gave, or `None` if it died, and the stores done.
    pub fn process<T>(&self, die_at: usize, work: impl FnOnce() -> T) -> (Option<T>, usize) {
        self.0.stores.set(0);
        self.0.die_at.set(die_at);
        let result = catch_unwind(AssertUnwindSafe(work));
        self.0.die_at.set(usize::MAX);
        match result {
            Ok(value) => (Some(value), self.0.stores.get()),
            Err(payload) if payload.is::<Death>() => (None, die_at),
            Err(payload) => resume_unwind(payload),
        }
    }

    fn write(&self, at: usize, value: u64) {
        let Some(word) = self.0.words.get(at) else {
            return;
        };
        if self.0.stores.get() >= self.0.die_at.get() {
            resume_unwind(Box::new(Death)); // without the panic hook's noise
        }
        self.0.stores.set(self.0.stores.get() + 1);
        let old = word.replace(value);
        if self.0.journaling.get() {
            self.0.journal.borrow_mut().push((at, old));
        }
    }
}

impl Memory for Sim {
    fn load(&self, at: usize) -> u64 {
        self.0.loads.set(self.0.loads.get() + 1);
        self.0.words.get(at).map_or(0, Cell::get)
    }
    fn store(&self, at: usize, value: u64) {
        self.write(at, value);
    }
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        match self.0.words.get(at).map(Cell::get) {
            Some(found) if found == old => {
                self.write(at, new);
                Ok(found)
            }
            found => Err(found.unwrap_or(0)),
        }
    }
    fn add(&self, at: usize, by: u64) -> u64 {
        let old = self.load(at);
        self.write(at, old.wrapping_add(by));
        old
    }
}

/// A fresh store.
pub fn fresh(capacity: Capacity) -> (Sim, Store<Sim>) {
    let layout = Layout::new(capacity);
    let memory = Sim::new(layout.words);
    let store = Store::new(memory.clone(), layout);
    store.format();
    (memory, store)
}

// Fields of the store header, as docs/recorder.md has them.
pub const NODE_TOP: usize = 0;
pub const NODE_FREE: usize = 1;
pub const HANDLE_TOP: usize = 2;
pub const HANDLE_FREE: usize = 3;
pub const HEAP_TOP: usize = 4;
pub const LOCKS: usize = 5;
pub const HIDDEN: usize = 7;
pub const HEAP_CLASSES: usize = 32;
pub const MAX_UNITS: usize = 68;
pub const HANDLE_WORDS: usize = 12;
pub const STREAM: usize = 6;
pub const CHUNK_UNITS: usize = 65;

pub fn header(store: &Store<Sim>, field: usize) -> u64 {
    store.memory().load(store.layout().store + field)
}

/// Keys of the nodes in use.
pub fn live_nodes(store: &Store<Sim>) -> Vec<u64> {
    (1..header(store, NODE_TOP))
        .map(|slot| {
            let born = store.memory().load(store.layout().nodes + slot as usize * NODE_WORDS + 1);
            (born << 32) | slot
        })
        .filter(|key| store.node_by_key(*key).is_some())
        .collect()
}

/// Length of a free list of records of `words` words from `area` on.
pub fn free_records(store: &Store<Sim>, head: usize, area: usize, words: usize) -> usize {
    let mut count = 0;
    let mut slot = header(store, head);
    while slot != 0 {
        count += 1;
        assert!(count < 1 << 24, "a free list has no end");
        slot = store.memory().load(area + slot as usize * words);
    }
    count
}

/// Units of the heap on free lists.
pub fn free_units(store: &Store<Sim>) -> usize {
    let mut units = 0;
    for class in 1..=MAX_UNITS {
        let mut block = header(store, HEAP_CLASSES + class);
        let mut blocks = 0;
        while block != 0 {
            units += class;
            blocks += 1;
            assert!(blocks < 1 << 24, "a free list has no end");
            block = store.memory().load(store.layout().heap + block as usize * 2);
        }
    }
    units
}

/// Units ever taken from the heap.
pub fn heap_top(store: &Store<Sim>) -> usize {
    header(store, HEAP_TOP) as usize - 1
}

/// Chunks that hang on a handle, counted or not.
pub fn chunks(store: &Store<Sim>, handle_key: u64) -> usize {
    let at = store.layout().handles + (handle_key as u32) as usize * HANDLE_WORDS + STREAM;
    let mut chunk = store.memory().load(at) >> 32;
    let mut count = 0;
    while chunk != 0 {
        count += 1;
        assert!(count < 1 << 24, "a stream has no end");
        chunk = store.memory().load(store.layout().heap + chunk as usize * 2);
    }
    count
}

/// Units of a block of `bytes` bytes.
pub fn units(bytes: usize) -> usize {
    bytes.div_ceil(16).max(1)
}

/// A random generator that needs no state but this word.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}
