//! A simulated memory in which a process can die at any store, and what a daemon ought to see.
#![allow(dead_code, missing_docs, reason = "each test uses its part")]

use belay_image::{Capacity, Overlay, Refused, Sealed};
use belay_memory::Memory;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What is to be committed: cut, length, and bytes by place.
pub type Commitment = (u64, u64, Vec<(u64, Vec<u8>)>);

pub mod disk;
pub mod hostile;

/// The end of the simulated process.
struct Death;

/// Words that count their stores, can end the process at the n-th, and can be rewound.
pub struct Sim {
    words: Vec<Cell<u64>>,
    stores: Cell<usize>,
    loads: Cell<usize>,
    die_at: Cell<usize>,
    journal: RefCell<Vec<(usize, u64)>>,
    journaling: Cell<bool>,
}

impl Sim {
    pub fn new(words: usize) -> Self {
        Self {
            words: vec![Cell::new(0); words],
            stores: Cell::new(0),
            loads: Cell::new(0),
            die_at: Cell::new(usize::MAX),
            journal: RefCell::default(),
            journaling: Cell::new(false),
        }
    }

    pub fn loads(&self) -> usize {
        self.loads.get()
    }

    /// Forgets how to go back further than to this instant.
    pub fn mark(&self) {
        self.journal.borrow_mut().clear();
        self.journaling.set(true);
    }

    /// Makes all words what they were at the last `mark`.
    pub fn rewind(&self) {
        for (at, old) in self.journal.borrow_mut().drain(..).rev() {
            self.words[at].set(old);
        }
    }

    /// Runs `work` in a process that dies instead of its store number `die_at` (from 0). Gives what
    /// `work` gave, or `None` if it died, and the stores done.
    pub fn process<T>(&self, die_at: usize, work: impl FnOnce() -> T) -> (Option<T>, usize) {
        self.stores.set(0);
        self.die_at.set(die_at);
        let result = catch_unwind(AssertUnwindSafe(work));
        self.die_at.set(usize::MAX);
        match result {
            Ok(value) => (Some(value), self.stores.get()),
            Err(payload) if payload.is::<Death>() => (None, die_at),
            Err(payload) => resume_unwind(payload),
        }
    }
}

impl Memory for Sim {
    fn load(&self, at: usize) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.words.get(at).map_or(0, Cell::get)
    }
    fn store(&self, at: usize, value: u64) {
        let Some(word) = self.words.get(at) else { return };
        if self.stores.get() >= self.die_at.get() {
            resume_unwind(Box::new(Death)); // without the panic hook's noise
        }
        self.stores.set(self.stores.get() + 1);
        let old = word.replace(value);
        if self.journaling.get() {
            self.journal.borrow_mut().push((at, old));
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
        let old = self.load(at);
        self.store(at, old.wrapping_add(by));
        old
    }
}

/// The overlay starts here, so that what is before it would be hit by a wrong place.
pub const AT: usize = 512;

/// Bytes of the memory, from byte `from` on.
pub fn memory_bytes(memory: &Sim, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| memory.load(at / 8).to_ne_bytes()[at % 8]).collect()
}

/// pread(2) of an image.
pub fn pread(disk: &[u8], offset: u64, out: &mut [u8]) -> Result<usize, Infallible> {
    let there = disk.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
    let n = there.len().min(out.len());
    out[..n].copy_from_slice(&there[..n]);
    out[n..].fill(0xee); // nobody may count on it
    Ok(n)
}

/// What a committer does to an image, step by step; it may stop at any.
pub fn steps(memory: &Sim, sealed: &Sealed, disk: &mut Vec<u8>, most: usize) {
    let mut left = most;
    let mut step = |work: &mut dyn FnMut()| {
        if left > 0 {
            left -= 1;
            work();
        }
    };
    step(&mut || disk.truncate(sealed.cut as usize));
    for run in &sealed.runs {
        step(&mut || {
            let end = run.offset as usize + run.len;
            if disk.len() < end {
                disk.resize(end, 0);
            }
            disk[run.offset as usize..end]
                .copy_from_slice(&memory_bytes(memory, run.from, run.len));
        });
    }
    step(&mut || disk.resize(sealed.length as usize, 0));
}

/// Something that happens to an image.
#[derive(Clone, Debug)]
pub enum Op {
    Write {
        at: usize,
        len: usize,
        seed: u8,
    },
    Length(usize),
    Seal,
    /// The committer does so many steps; if that are all, the epoch is committed.
    Commit(usize),
    /// The daemon dies.
    Die,
}

/// Bytes of the image, at most.
pub const MOST: usize = 12 * 4096;

fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => (0..MOST / 512).prop_map(|sector| sector * 512),
        1 => 0..MOST,
        1 => (0..MOST / 512, 0..9usize).prop_map(|(sector, more)| sector * 512 + more),
    ]
}

fn length(most: usize) -> impl Strategy<Value = usize> {
    let sectors = most.div_ceil(512);
    prop_oneof![
        2 => (1..=sectors).prop_map(|sectors| sectors * 512),
        1 => 1..=most,
        1 => 1..20usize,
    ]
}

pub fn op(most: usize) -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (place(), length(most), any::<u8>()).prop_map(|(at, len, seed)| Op::Write { at, len, seed }),
        2 => place().prop_map(Op::Length),
        3 => Just(Op::Seal),
        3 => prop_oneof![2 => Just(usize::MAX), 1 => 0..12usize].prop_map(Op::Commit),
        1 => Just(Op::Die),
    ]
}

/// What there ought to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The image on the disk, which a committer may have left in between.
    pub disk: Vec<u8>,
    /// The image at the last checkpoint.
    pub checkpoint: Vec<u8>,
    /// The image as the daemon sees it.
    pub current: Vec<u8>,
    /// Whether the checkpoint is on the disk.
    pub committed: bool,
    pub epoch: u64,
    /// Pages that the current epoch has written.
    pub pages: BTreeSet<usize>,
}

pub struct World {
    pub memory: Sim,
    pub capacity: Capacity,
    pub model: Model,
}

impl World {
    pub fn new(pages: usize, length: usize) -> Self {
        let capacity = Capacity { pages };
        let memory = Sim::new(AT + capacity.words() + 512);
        let disk: Vec<u8> = (0..length).map(|i| (i / 16 * 7 + i) as u8 | 1).collect();
        let model = Model {
            checkpoint: disk.clone(),
            current: disk.clone(),
            disk,
            committed: true,
            epoch: 1,
            pages: BTreeSet::new(),
        };
        let world = Self { memory, capacity, model };
        world.overlay().discard_current(length as u64).unwrap();
        world
    }

    /// As any process sees it.
    pub fn overlay(&self) -> Overlay<'_, Sim> {
        Overlay::new(&self.memory, AT, self.capacity)
    }

    pub fn bytes(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8 ^ seed | 2).collect()
    }

    /// Does what the daemon or the committer does, and gives the model afterwards. The disk is
    /// changed at once.
    pub fn act(&self, op: &Op) -> Model {
        let overlay = self.overlay();
        let mut model = self.model.clone();
        match op {
            Op::Write { at, len, seed } => {
                let bytes = Self::bytes(*len, *seed);
                let done = overlay.write(*at as u64, &bytes, |at, out| pread(&model.disk, at, out));
                let mut pages = model.pages.clone();
                pages.extend(at / 4096..=(at + len - 1) / 4096);
                if pages.len() > self.capacity.pages {
                    assert_eq!(done, Err(Refused::Full));
                } else {
                    assert_eq!(done, Ok(*len));
                    model.pages = pages;
                    if model.current.len() < at + len {
                        model.current.resize(at + len, 0);
                    }
                    model.current[*at..at + len].copy_from_slice(&bytes);
                }
            }
            Op::Length(length) => {
                overlay.set_length(*length as u64).unwrap();
                model.current.resize(*length, 0);
            }
            Op::Seal => {
                assert_eq!(overlay.can_seal(), Ok(model.committed));
                let sealed = overlay.seal().unwrap();
                assert_eq!(sealed, model.committed.then_some(model.epoch));
                if model.committed {
                    model.checkpoint = model.current.clone();
                    model.committed = false;
                    model.epoch += 1;
                    model.pages.clear();
                }
            }
            Op::Commit(most) => {
                let sealed = overlay.sealed().unwrap();
                assert_eq!(sealed.is_some(), !model.committed);
                if let Some(sealed) = sealed {
                    steps(&self.memory, &sealed, &mut model.disk, *most);
                    if *most == usize::MAX {
                        overlay.set_committed(sealed.epoch).unwrap();
                        model.committed = true;
                        assert!(model.disk == model.checkpoint, "what is committed");
                    }
                }
            }
            Op::Die => {
                overlay.discard_current(model.disk.len() as u64).unwrap();
                model.current = model.checkpoint.clone();
                model.pages.clear();
            }
        }
        model
    }

    /// The image as a daemon sees it.
    pub fn view(&self, disk: &[u8]) -> Vec<u8> {
        let mut out = vec![0xdd; MOST * 2];
        let n = self.overlay().read(0, &mut out, |at, out| pread(disk, at, out)).unwrap();
        out.truncate(n);
        out
    }

    /// The checkpoint as the committer is to write it.
    pub fn commitment(&self) -> Option<Commitment> {
        self.overlay().sealed().unwrap().map(|sealed| {
            let runs = sealed.runs.iter();
            let runs = runs.map(|run| (run.offset, memory_bytes(&self.memory, run.from, run.len)));
            (sealed.cut, sealed.length, runs.collect())
        })
    }
}
