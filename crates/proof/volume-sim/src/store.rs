//! A file store at work, that dies at any write, and is compared with the model.

mod applied;

use crate::Random;
use crate::disk::SimDisk;
use crate::model::Model;
use applied::{apply, take_over_blocks, written_by};
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use belay_store::{Class, DataMode, Error, FileId, Parameters, Store, root};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Blocks of a file that are written to.
const BLOCKS: u64 = 700;

/// What is done to a store.
#[derive(Clone, Debug)]
pub enum Act {
    /// A file is made.
    Create(Class),
    /// A file is removed.
    Delete(usize),
    /// Blocks are written: of which file, from where on, how many, with what.
    Write(usize, u64, u64, u8),
    /// The length of a file is changed.
    SetSize(usize, u64),
    /// Attributes are set.
    SetAttributes(usize, u8),
    /// Blocks are made zeros.
    Punch(usize, u64, u64),
    /// A checkpoint is taken.
    Checkpoint,
}

/// A random one.
pub fn random_act(random: &mut Random) -> Act {
    let which = random.random_range(0..12);
    // Files with few blocks, and some with many: another depth of the tree.
    let at = |random: &mut Random| match random.random_range(0..3) {
        0 => random.random_range(0..4),
        1 => random.random_range(0..40),
        _ => random.random_range(0..BLOCKS),
    };
    match random.random_range(0..100) {
        0..10 => Act::Create(if random.random() { Class::Data } else { Class::Protected }),
        10..14 => Act::Delete(which),
        14..60 => {
            let count = if random.random_range(0..8) == 0 { 40 } else { 4 };
            Act::Write(which, at(random), random.random_range(1..=count), random.random())
        }
        60..72 => Act::SetSize(which, at(random) * BLOCK as u64 + random.random_range(0..2) * 1000),
        72..80 => Act::SetAttributes(which, random.random()),
        80..86 => Act::Punch(which, at(random), random.random_range(1..50)),
        _ => Act::Checkpoint,
    }
}

/// What a simulation has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations that were done.
    pub operations: u64,
    /// Power failures and deaths.
    pub ends: u64,
    /// How often the checkpoint before the one that was being taken was gone back to.
    pub rolled_back: u64,
    /// Blocks that were overwritten in place, and were new after an end.
    pub newer: u64,
    /// The same, that were neither old nor new.
    pub torn: u64,
}

/// A block that was written: its epoch, file, number and content.
type Written = (u64, FileId, u64, Box<Block>);

/// A store on a simulated disk, and what it must hold.
pub struct Simulation {
    disk: SimDisk,
    random: Random,
    /// What it must hold now.
    now: Model,
    /// What its checkpoints must hold.
    checkpoints: BTreeMap<u64, Model>,
    /// Where data are written in place: what was written, in which epoch.
    written: Vec<Written>,
    in_place: bool,
    /// The last end may have torn blocks.
    may_be_torn: bool,
    /// What has come of it so far.
    pub outcome: Outcome,
}

fn identity() -> belay_store::Identity {
    belay_store::Identity {
        volume: *b"volume of a test",
        store: *b"a store of a tes",
        members: vec![*b"a store of a tes"],
    }
}

fn content(byte: u8, number: u64) -> Block {
    let mut block = [byte; BLOCK];
    block[..8].copy_from_slice(&number.to_le_bytes());
    // Some are zeros at their ends, as those of files are.
    if byte.is_multiple_of(4) { ZEROS } else { block }
}

impl Simulation {
    /// A new store.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, blocks: u64, parameters: Parameters) -> Result<Self, String> {
        let disk = SimDisk::new(blocks);
        let store = Store::format(&disk, &identity(), parameters).map_err(|why| why.to_string())?;
        let epoch = store.epoch() - 1;
        drop(store);
        Ok(Self {
            disk,
            random: Random::seed_from_u64(seed),
            now: Model::default(),
            checkpoints: BTreeMap::from([(epoch, Model::default())]),
            written: Vec::new(),
            in_place: parameters.data == DataMode::InPlace,
            may_be_torn: false,
            outcome: Outcome::default(),
        })
    }

    /// The disk.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// What the store must hold at its last checkpoint.
    pub fn last(&self) -> Option<(&u64, &Model)> {
        self.checkpoints.last_key_value()
    }

    /// Opens the store at its last checkpoint, and compares it with the model.
    ///
    /// # Errors
    /// What differs.
    pub fn reopen(&mut self) -> Result<(), String> {
        let found = root::checkpoints(&self.disk).map_err(|why| why.to_string())?;
        let newest = found.first().ok_or("no checkpoint")?;
        let epoch = newest.epoch;
        let last = *self.checkpoints.last_key_value().ok_or("nothing was taken")?.0;
        if epoch < last {
            self.outcome.rolled_back += 1;
        }
        let Some(mut model) = self.checkpoints.get(&epoch).cloned() else {
            return Err(format!(
                "checkpoint {epoch} was never taken: {:?}",
                self.checkpoints.keys()
            ));
        };
        let mut store = Store::open(&self.disk, newest).map_err(|why| why.to_string())?;
        if self.in_place {
            let newer = self.written.iter().filter(|one| one.0 == epoch + 1);
            let newer: Vec<&Written> = newer.collect();
            let (new, torn) = take_over_blocks(&mut store, &mut model, &newer, self.may_be_torn)?;
            self.outcome.newer += new;
            self.outcome.torn += torn;
        }
        compare(&mut store, &model)?;
        let report = store.check().map_err(|why| why.to_string())?;
        if !report.findings.is_empty() {
            return Err(format!("the check finds: {:?}", report.findings));
        }
        let epoch =
            if self.in_place { store.checkpoint().map_err(|why| why.to_string())? } else { epoch };
        drop(store);
        self.checkpoints.retain(|other, _| *other < epoch);
        self.checkpoints.insert(epoch, model.clone());
        self.now = model;
        self.written.clear();
        Ok(())
    }

    /// Has a store do this until it is done, or the power fails; compares what is read meanwhile.
    ///
    /// # Errors
    /// What differs.
    pub fn life(&mut self, acts: &[Act], memory: usize) -> Result<(), String> {
        let disk = &self.disk;
        let mut store = match Store::open_last(disk) {
            Err(_) if disk.power().is_off() => return Ok(()),
            opened => opened.map_err(|why| why.to_string())?,
        };
        store.limit_memory(memory);
        for act in acts {
            // It may be there when the power fails in it.
            if let Act::Checkpoint = act {
                self.checkpoints.insert(store.epoch(), self.now.clone());
            }
            let epoch = store.epoch();
            let written = written_by(&self.now, act).into_iter();
            self.written.extend(written.map(|(file, number, block)| (epoch, file, number, block)));
            match apply(&mut store, &mut self.now, act, &mut self.random) {
                Ok(()) => self.outcome.operations += 1,
                Err(_) if disk.power().is_off() => return Ok(()),
                Err(why) => return Err(format!("{act:?}: {why}")),
            }
        }
        match compare(&mut store, &self.now) {
            // Reading makes room in memory, for which something may be written.
            Err(_) if disk.power().is_off() => Ok(()),
            done => done,
        }
    }

    /// A power failure, or the death of the process.
    pub fn end(&mut self, power: bool) {
        self.outcome.ends += 1;
        self.may_be_torn = power && self.disk.power_failure(&mut self.random);
        self.disk.power().end_at(None);
    }
}

/// Compares all of a store with what it must hold.
///
/// # Errors
/// What differs.
pub fn compare<D: Disk>(store: &mut Store<D>, model: &Model) -> Result<(), String> {
    for (file, known) in &model.files {
        let say = |why: Error| format!("{file}: {why}");
        let found = store.attributes(*file).map_err(say)?;
        let same = (found.size, found.owner, found.class, &found.attributes)
            == (known.size, known.owner, known.class, &known.attributes);
        if !same {
            return Err(format!(
                "{file} is {found:?}, not {} bytes, {:?}",
                known.size, known.attributes
            ));
        }
        let last = known.blocks.last_key_value().map_or(0, |(number, _)| number + 2);
        for number in 0..last {
            let mut block = ZEROS;
            store.read(*file, number, &mut block).map_err(say)?;
            if block != known.block(number) {
                return Err(format!("block {number} of {file} is another one"));
            }
        }
        let written = store.written(*file, 0, usize::MAX).map_err(say)?;
        if let Some(number) = written.iter().find(|number| !known.blocks.contains_key(number)) {
            return Err(format!("block {number} of {file} takes room"));
        }
    }
    Ok(())
}
