//! A simulated disk.
//!
//! What is written is in its cache first. A flush brings all of it to the medium. A power failure leaves any part of what is in the cache,
//! in units of sectors. Besides that, whatever a disk can do wrong can be put in: see [`Fault`].

use crate::Random;
use belay_disk::{BLOCK, Block, Disk, ZEROS, check_range};
use rand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// What a disk writes as a whole, or not at all.
const SECTOR: usize = 512;
/// Old contents of a block that are kept, to be put back.
const OLD: usize = 4;

/// What a disk can do wrong by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A bit of a block is another one.
    FlippedBit,
    /// A block is what it was some time ago: a write was lost, though a flush has said that it is durable.
    OldCopy,
    /// A block holds what was meant for another one.
    Misdirected,
    /// A block is zeros.
    Zeros,
    /// A block cannot be read.
    Unreadable,
}

/// All of them.
pub const FAULTS: [Fault; 5] =
    [Fault::FlippedBit, Fault::OldCopy, Fault::Misdirected, Fault::Zeros, Fault::Unreadable];

#[derive(Debug, Default)]
struct State {
    medium: BTreeMap<u64, Block>,
    cache: Vec<(u64, Block)>,
    /// What blocks of the medium were before, the youngest last.
    old: BTreeMap<u64, Vec<Block>>,
    unreadable: Vec<u64>,
}

/// What all disks of a machine have in common: power, and how many writes and flushes there were.
#[derive(Clone, Debug, Default)]
pub struct Power(Rc<(Cell<u64>, Cell<Option<u64>>)>);

impl Power {
    /// How many writes and flushes there were.
    pub fn steps(&self) -> u64 {
        self.0.0.get()
    }

    /// Has the power fail, or the process die, at that write or flush, counted from the start: it and all later ones do nothing.
    pub fn end_at(&self, step: Option<u64>) {
        self.0.1.set(step);
    }

    /// Whether there is none.
    pub fn is_off(&self) -> bool {
        self.0.1.get().is_some_and(|end| self.steps() >= end)
    }

    /// A write or flush begins; an error if there is no power any more.
    fn step(&self) -> io::Result<()> {
        if self.is_off() {
            return Err(io::Error::other("there is no power"));
        }
        self.0.0.set(self.steps() + 1);
        Ok(())
    }
}

/// A simulated disk.
#[derive(Debug)]
pub struct SimDisk {
    blocks: u64,
    power: Power,
    state: RefCell<State>,
}

impl SimDisk {
    /// One of zeros, with so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self::with(blocks, &Power::default())
    }

    /// The same, in a machine with others.
    pub fn with(blocks: u64, power: &Power) -> Self {
        Self { blocks, power: power.clone(), state: RefCell::default() }
    }

    /// Its power.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// A power failure, after which the disk is as a power failure leaves it: of what was not flushed, any part.
    pub fn power_failure(&self, random: &mut Random) {
        let mut state = self.state.borrow_mut();
        // A disk may have written all, or nothing, or some of it.
        let share = [0, 100, random.random_range(0..=100)][random.random_range(0..3)];
        for (block, data) in std::mem::take(&mut state.cache) {
            let mut now = state.medium.get(&block).copied().unwrap_or(ZEROS);
            let torn = random.random_range(0..10) == 0;
            let all = random.random_range(0..100) < share;
            for (to, from) in now.chunks_mut(SECTOR).zip(data.chunks(SECTOR)) {
                if if torn { random.random() } else { all } {
                    to.copy_from_slice(from);
                }
            }
            state.put(block, now);
        }
    }

    /// Does something wrong to a block that was written; says which one.
    pub fn fault(&self, fault: Fault, random: &mut Random) -> Option<u64> {
        let mut state = self.state.borrow_mut();
        let written: Vec<u64> = state.medium.keys().copied().collect();
        let any = |random: &mut Random| {
            written.get(random.random_range(0..written.len().max(1))).copied()
        };
        let block = any(random)?;
        let mut data = *state.medium.get(&block)?;
        match fault {
            Fault::FlippedBit => {
                let bit = random.random_range(0..BLOCK * 8);
                data[bit / 8] ^= 1 << (bit % 8);
            }
            Fault::OldCopy => {
                let old = state.old.get(&block)?;
                data = *old.get(random.random_range(0..old.len().max(1)))?;
            }
            Fault::Misdirected => {
                let other = any(random)?;
                data = *state.medium.get(&other)?;
            }
            Fault::Zeros => data = ZEROS,
            Fault::Unreadable => state.unreadable.push(block),
        }
        state.medium.insert(block, data);
        Some(block)
    }
}

impl State {
    fn put(&mut self, block: u64, data: Block) {
        if let Some(before) = self.medium.insert(block, data) {
            let old = self.old.entry(block).or_default();
            old.push(before);
            if old.len() > OLD {
                old.remove(0);
            }
        }
        self.unreadable.retain(|other| *other != block);
    }
}

impl Disk for SimDisk {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        check_range(self.blocks, first, out.len())?;
        let state = self.state.borrow();
        for (block, out) in (first..).zip(out.chunks_mut(BLOCK)) {
            let cached = state.cache.iter().rev().find(|(other, _)| *other == block);
            let data = match cached {
                Some((_, data)) => Some(data),
                None if state.unreadable.contains(&block) => {
                    return Err(io::Error::other("the medium cannot be read here"));
                }
                None => state.medium.get(&block),
            };
            out.copy_from_slice(data.unwrap_or(&ZEROS));
        }
        Ok(())
    }

    fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.blocks, first, data.len())?;
        let mut state = self.state.borrow_mut();
        for (block, data) in (first..).zip(data.chunks(BLOCK)) {
            // Each block is a step of its own: the power may fail between any two.
            self.power.step()?;
            let data = data.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
            state.cache.push((block, data));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.power.step()?;
        let mut state = self.state.borrow_mut();
        for (block, data) in std::mem::take(&mut state.cache) {
            state.put(block, data);
        }
        Ok(())
    }
}
