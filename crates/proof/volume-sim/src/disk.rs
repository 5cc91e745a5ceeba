//! A simulated disk.
//!
//! What is written is in its cache first. A flush brings all of it to the medium. A power failure
//! leaves any part of what is in the cache, in units of sectors. Besides that, whatever a disk can
//! do wrong can be put in: see [`Fault`] for what it does to a block that it has had, and
//! [`Trouble`] for what it answers for a while.

mod power;
mod trouble;

pub use power::Power;
pub use trouble::{TROUBLES, Trouble};

use crate::Random;
use crate::sabotage::Sabotage;
use belay_disk::{BLOCK, Block, Disk, ZEROS, check_range};
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use trouble::Troubles;

/// What a disk writes as a whole, or not at all.
const SECTOR: usize = 512;
/// Old contents of a block that are kept, to be put back.
const OLD: usize = 4;

/// What a disk can do wrong by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A bit of a block is another one.
    FlippedBit,
    /// A block is what it was some time ago: a write was lost, though a flush has said that it is
    /// durable.
    OldCopy,
    /// A part of a block is what it was some time ago.
    Torn,
    /// A block holds what was meant for another one.
    Misdirected,
    /// A block is zeros.
    Zeros,
    /// A block cannot be read.
    Unreadable,
}

/// All of them.
pub const FAULTS: [Fault; 6] = [
    Fault::FlippedBit,
    Fault::OldCopy,
    Fault::Torn,
    Fault::Misdirected,
    Fault::Zeros,
    Fault::Unreadable,
];

#[derive(Clone, Debug, Default)]
struct State {
    medium: BTreeMap<u64, Rc<Block>>,
    cache: Vec<(u64, Rc<Block>)>,
    /// Where in the cache the last version of a block is.
    cached: BTreeMap<u64, usize>,
    /// What was said to be durable, is read as if it was, and goes with the power.
    lost: BTreeMap<u64, Rc<Block>>,
    /// What blocks of the medium were before, the youngest last.
    old: BTreeMap<u64, Vec<Rc<Block>>>,
    unreadable: Vec<u64>,
    /// What blocks held to which something wrong was done, and nothing written since.
    healthy: BTreeMap<u64, Rc<Block>>,
    last_written: u64,
}

/// A simulated disk.
#[derive(Debug)]
pub struct SimDisk {
    blocks: u64,
    power: Power,
    state: RefCell<State>,
    troubles: Troubles,
    sabotage: Cell<Option<Sabotage>>,
}

impl SimDisk {
    /// One of zeros, with so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self::with(blocks, &Power::default())
    }

    /// The same, in a machine with others.
    pub fn with(blocks: u64, power: &Power) -> Self {
        Self {
            blocks,
            power: power.clone(),
            state: RefCell::default(),
            troubles: Troubles::default(),
            sabotage: Cell::default(),
        }
    }

    /// Another one in another machine, which is as this one is now, and well.
    #[must_use]
    pub fn copy(&self, power: &Power) -> Self {
        let state = RefCell::new(self.state.borrow().clone());
        Self { state, sabotage: self.sabotage.clone(), ..Self::with(self.blocks, power) }
    }

    /// Its power.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// What it answers for a while.
    pub fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// Does something wrong that its users have to find.
    pub fn sabotage(&self, sabotage: Option<Sabotage>) {
        self.sabotage.set(sabotage);
    }

    /// A power failure, after which the disk is as a power failure leaves it: of what was not
    /// flushed, any part. Gives whether blocks may be torn; some disks write all of a block, or
    /// nothing.
    pub fn power_failure(&self, random: &mut Random) -> bool {
        // A disk may have written all, or nothing, or some of it.
        let share = [0, 100, random.random_range(0..=100)][random.random_range(0..3)];
        let tears = random.random::<bool>() && !matches!(share, 0 | 100);
        self.cut_off(share, tears, random);
        tears
    }

    /// The same, where about so many of a hundred blocks that were not flushed are there.
    pub fn power_failure_with(&self, share: u32, random: &mut Random) {
        self.cut_off(share, !matches!(share, 0 | 100), random);
    }

    /// The same of a disk that writes all of a block, or nothing.
    pub fn power_failure_of_whole_blocks(&self, share: u32, random: &mut Random) {
        self.cut_off(share, false, random);
    }

    fn cut_off(&self, share: u32, tears: bool, random: &mut Random) {
        let mut state = self.state.borrow_mut();
        state.cached.clear();
        state.lost.clear();
        for (block, data) in std::mem::take(&mut state.cache) {
            let mut now = state.medium.get(&block).map_or(ZEROS, |data| **data);
            let torn = tears && random.random_range(0..10) == 0;
            let all = random.random_range(0..100) < share;
            for (to, from) in now.chunks_mut(SECTOR).zip(data.chunks(SECTOR)) {
                if if torn { random.random() } else { all } {
                    to.copy_from_slice(from);
                }
            }
            state.put(block, Rc::new(now));
        }
    }

    /// Does something wrong to a block that was written; says which one.
    pub fn fault(&self, fault: Fault, random: &mut Random) -> Option<u64> {
        let written = self.written();
        let block = *written.get(random.random_range(0..written.len().max(1)))?;
        self.fault_at(block, fault, random)
    }

    /// Does something wrong to that block; `None` if that cannot be done to it.
    pub fn fault_at(&self, block: u64, fault: Fault, random: &mut Random) -> Option<u64> {
        let written = self.written();
        let mut state = self.state.borrow_mut();
        let before = Rc::clone(state.medium.get(&block)?);
        let old = state.old.get(&block).and_then(|old| {
            let which = random.random_range(0..old.len().max(1));
            old.get(which).cloned()
        });
        let mut data = *before;
        match fault {
            Fault::FlippedBit => {
                let bit = random.random_range(0..BLOCK * 8);
                data[bit / 8] ^= 1 << (bit % 8);
            }
            Fault::OldCopy => data = *old?,
            Fault::Torn => {
                let end = random.random_range(1..BLOCK / SECTOR) * SECTOR;
                data[..end].copy_from_slice(old?.get(..end)?);
            }
            Fault::Misdirected => {
                let other = written.get(random.random_range(0..written.len().max(1)))?;
                data = **state.medium.get(other)?;
            }
            Fault::Zeros => data = ZEROS,
            Fault::Unreadable => state.unreadable.push(block),
        }
        state.healthy.entry(block).or_insert(before);
        state.medium.insert(block, Rc::new(data));
        Some(block)
    }

    /// The disk is as it was, but for blocks that were written since.
    pub fn heal(&self) {
        let mut state = self.state.borrow_mut();
        state.unreadable.clear();
        let healthy = std::mem::take(&mut state.healthy);
        state.medium.extend(healthy);
    }

    /// Blocks of the medium that were written.
    pub fn written(&self) -> Vec<u64> {
        self.state.borrow().medium.keys().copied().collect()
    }

    /// Blocks of the medium that hold this.
    pub fn holding(&self, content: &[u8]) -> Vec<u64> {
        let state = self.state.borrow();
        let all = state.medium.iter().filter(|(_, data)| data.as_slice() == content);
        all.map(|(block, _)| *block).collect()
    }

    /// Whether roots are there.
    pub fn is_root(&self, block: u64) -> bool {
        block <= 2 || block + 2 >= self.blocks
    }
}

impl State {
    fn put(&mut self, block: u64, data: Rc<Block>) {
        if let Some(before) = self.medium.insert(block, data) {
            let old = self.old.entry(block).or_default();
            old.push(before);
            if old.len() > OLD {
                old.remove(0);
            }
        }
        self.unreadable.retain(|other| *other != block);
        self.healthy.remove(&block);
        self.lost.remove(&block);
    }

    fn cache(&mut self, block: u64, data: Rc<Block>) {
        self.cached.insert(block, self.cache.len());
        self.cache.push((block, data));
        self.last_written = block;
    }

    /// What is read of a block; an error if the medium cannot be read there.
    fn at(&self, block: u64) -> io::Result<&Block> {
        let cached = self.cached.get(&block).and_then(|at| self.cache.get(*at));
        let found = match cached {
            Some((_, data)) => Some(data),
            None if self.unreadable.contains(&block) => {
                let kind = io::ErrorKind::InvalidData;
                return Err(io::Error::new(kind, "the medium cannot be read here"));
            }
            None => self.lost.get(&block).or_else(|| self.medium.get(&block)),
        };
        Ok(found.map_or(&ZEROS, |data| data))
    }
}

impl Disk for SimDisk {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        check_range(self.blocks, first, out.len())?;
        self.troubles.read()?;
        let state = self.state.borrow();
        for (block, out) in (first..).zip(out.chunks_mut(BLOCK)) {
            out.copy_from_slice(state.at(block)?);
        }
        Ok(())
    }

    fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.blocks, first, data.len())?;
        for (block, data) in (first..).zip(data.chunks(BLOCK)) {
            let data: Block = data.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
            let is_new = {
                let state = self.state.borrow();
                !state.medium.contains_key(&block) && !state.cached.contains_key(&block)
            };
            if let Err(why) = self.troubles.write(is_new) {
                if !is_new {
                    // Nobody knows what is there now.
                    let mut state = self.state.borrow_mut();
                    let mut torn = state.at(block).copied().unwrap_or(ZEROS);
                    torn[..BLOCK / 2].copy_from_slice(&data[..BLOCK / 2]);
                    state.cache(block, Rc::new(torn));
                }
                return Err(why);
            }
            // Each block is a step of its own: the power may fail between any two.
            self.power.step()?;
            self.state.borrow_mut().cache(block, Rc::new(data));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let failed = self.troubles.flush();
        if let Err((why, is_lost)) = failed {
            let mut state = self.state.borrow_mut();
            if is_lost {
                // As Linux does: what could not be written is taken for written, and nobody is told
                // again.
                state.cached.clear();
                let cache = std::mem::take(&mut state.cache);
                state.lost.extend(cache);
            }
            return Err(why);
        }
        self.power.step()?;
        let mut state = self.state.borrow_mut();
        if self.sabotage.get() == Some(Sabotage::LostFlush) && !self.is_root(state.last_written) {
            return Ok(());
        }
        state.cached.clear();
        for (block, data) in std::mem::take(&mut state.cache) {
            state.put(block, data);
        }
        Ok(())
    }
}
