//! The logical layer at work on several disks, which lose power together, or whose process dies, at
//! any write.

use crate::Random;
use crate::disk::{Power, SimDisk};
use belay_disk::{BLOCK, Block, ZEROS};
use belay_logical::{Error, Logical};
use belay_object::{Class, Lower as _, ObjectId, Operation};
use belay_store::{DataMode, Parameters};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Objects that there can be.
const OBJECTS: u64 = 300;

/// What an object must be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    class: Class,
    size: u64,
    attributes: Vec<u8>,
    pages: BTreeMap<u64, Box<Block>>,
}

/// What all objects must be.
type Model = BTreeMap<ObjectId, Known>;

/// What was written to each page.
type Written = BTreeMap<(ObjectId, u64), Vec<Box<Block>>>;

/// A volume on simulated disks.
pub struct Volume {
    disks: Vec<SimDisk>,
    power: Power,
    random: Random,
    now: Model,
    checkpoints: BTreeMap<u64, Model>,
    /// Data are written in place: what was overwritten since the last checkpoint may be there, or
    /// torn.
    in_place: bool,
    /// What pages were since then.
    written: Written,
    /// The last end may have torn blocks.
    may_be_torn: bool,
    /// Pages that were torn.
    pub torn: u64,
    /// Operations that were done.
    pub operations: u64,
    /// How often the stores had to agree on the checkpoint before.
    pub rolled_back: u64,
}

fn say(why: Error) -> String {
    why.to_string()
}

impl Volume {
    /// A new volume with so many stores.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, stores: u8, blocks: u64) -> Result<Self, String> {
        let power = Power::default();
        let disks: Vec<SimDisk> = (0..stores).map(|_| SimDisk::with(blocks, &power)).collect();
        let named = disks.iter().zip(0..).map(|(disk, number): (_, u8)| ([number + 1; 16], disk));
        let in_place = seed.is_multiple_of(2);
        let data = if in_place { DataMode::InPlace } else { DataMode::OutOfPlace };
        let parameters = Parameters { data, ..Parameters::default().small() };
        let volume = Logical::format([9; 16], named.collect(), parameters);
        let epoch = volume.map_err(say)?.epoch() - 1;
        let random = Random::seed_from_u64(seed);
        let checkpoints = BTreeMap::from([(epoch, Model::new())]);
        Ok(Self {
            disks,
            power,
            random,
            now: Model::new(),
            checkpoints,
            in_place,
            written: Written::new(),
            may_be_torn: false,
            torn: 0,
            operations: 0,
            rolled_back: 0,
        })
    }

    /// The power of its disks.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// A power failure, or the death of the process.
    pub fn end(&mut self, power: bool) {
        self.may_be_torn = false;
        if power {
            for disk in &self.disks {
                self.may_be_torn |= disk.power_failure(&mut self.random);
            }
        }
        self.power.end_at(None);
    }

    /// Opens the volume, and compares it with what it must hold.
    ///
    /// # Errors
    /// What differs.
    pub fn reopen(&mut self) -> Result<(), String> {
        let last = *self.checkpoints.last_key_value().ok_or("nothing was taken")?.0;
        let opened = open(&self.disks, &mut self.random).map(|volume| volume.epoch() - 1)?;
        self.rolled_back += u64::from(opened < last);
        let Some(mut model) = self.checkpoints.get(&opened).cloned() else {
            return Err(format!("checkpoint {opened} was never taken"));
        };
        let mut volume = open(&self.disks, &mut self.random)?;
        if self.in_place {
            self.torn += take_over(&mut volume, &mut model, &self.written, self.may_be_torn)?;
        }
        compare(&mut volume, &model)?;
        for store in volume.stores() {
            let report = store.check().map_err(|why| why.to_string())?;
            if !report.findings.is_empty() {
                return Err(format!("the check finds: {:?}", report.findings));
            }
        }
        self.checkpoints.retain(|epoch, _| *epoch <= opened);
        if self.in_place {
            // What was taken over is what the next life begins with.
            let epoch = volume.checkpoint().map_err(say)?;
            self.checkpoints.insert(epoch, model.clone());
        }
        drop(volume);
        self.written.clear();
        self.now = model;
        Ok(())
    }

    /// Does so many random things, until they are done or there is no power.
    ///
    /// # Errors
    /// What differs.
    pub fn life(&mut self, count: usize) -> Result<(), String> {
        // In some lives there is little else than checkpoints.
        let seldom = [2, 5, 20][self.random.random_range(0..3)];
        let disks: Vec<&SimDisk> = self.disks.iter().collect();
        let mut volume = match Logical::open(disks) {
            Err(_) if self.power.is_off() => return Ok(()),
            opened => opened.map_err(say)?,
        };
        volume.begin_branch(self.random.random());
        for _ in 0..count {
            let done = match self.random.random_range(0..seldom) {
                0 => {
                    self.checkpoints.insert(volume.epoch(), self.now.clone());
                    volume.checkpoint().map(|_| ()).map_err(say)
                }
                _ => {
                    let written = self.in_place.then_some(&mut self.written);
                    act(&mut volume, &mut self.now, written, &mut self.random)
                }
            };
            match done {
                Ok(()) => self.operations += 1,
                Err(_) if self.power.is_off() => return Ok(()),
                Err(why) => return Err(why),
            }
        }
        compare(&mut volume, &self.now)
    }
}

fn open<'d>(disks: &'d [SimDisk], random: &mut Random) -> Result<Logical<&'d SimDisk>, String> {
    // The order of the disks is nobody's business.
    let mut disks: Vec<&SimDisk> = disks.iter().collect();
    let by = random.random_range(0..disks.len());
    disks.rotate_left(by);
    Logical::open(disks).map_err(say)
}

/// One random operation.
fn act(
    volume: &mut Logical<&SimDisk>,
    model: &mut Model,
    written: Option<&mut Written>,
    random: &mut Random,
) -> Result<(), String> {
    let object = ObjectId(random.random_range(0..OBJECTS));
    let attributes = vec![random.random(); random.random_range(0..160)];
    let page = random.random_range(0..300);
    let data: Vec<u8> = vec![random.random(); random.random_range(1..6) * BLOCK];
    let class = if random.random() { Class::Data } else { Class::Metadata };
    let size = random.random_range(0..300) * BLOCK as u64 + random.random_range(0..2) * 77;
    let operation = match random.random_range(0..100) {
        0..25 => Operation::Create { object, class, attributes: &attributes },
        25..35 => Operation::Delete { object },
        35..75 => Operation::Write { object, page, data: &data },
        75..85 => Operation::SetSize { object, size },
        85..95 => Operation::SetAttributes { object, attributes: &attributes },
        _ => Operation::Punch { object, page, count: 20 },
    };
    // Whatever comes of it: a part of it may be there.
    if let (Some(written), Some(known)) = (written, model.get(&object)) {
        match operation {
            Operation::Write { .. } => {
                let (blocks, _) = data.as_chunks::<BLOCK>();
                for (page, block) in (page..).zip(blocks) {
                    written.entry((object, page)).or_default().push(Box::new(*block));
                }
            }
            Operation::SetSize { .. } => {
                let page = size / BLOCK as u64;
                if let Some(mut last) = known.pages.get(&page).cloned() {
                    last[(size % BLOCK as u64) as usize..].fill(0);
                    written.entry((object, page)).or_default().push(last);
                }
            }
            _ => {}
        }
    }
    let known = model.contains_key(&object);
    match volume.apply(&operation) {
        Err(Error::NoObject(_)) if !known => return Ok(()),
        Err(Error::Exists(_)) if known => return Ok(()),
        // None of these leaves a part of a change but a write, which is not compared further then.
        Err(Error::NoSpace) if !matches!(operation, Operation::Write { .. }) => return Ok(()),
        done => done.map_err(|why| format!("{operation:.60?}: {why}"))?,
    }
    if known == matches!(operation, Operation::Create { .. }) {
        return Err(format!("{operation:.60?} was done"));
    }
    match operation {
        Operation::Create { .. } => {
            model.insert(object, Known { class, size: 0, attributes, pages: BTreeMap::new() });
        }
        Operation::Delete { .. } => {
            model.remove(&object);
        }
        Operation::Write { .. } => {
            let Some(known) = model.get_mut(&object) else { return Ok(()) };
            let (blocks, _) = data.as_chunks::<BLOCK>();
            known.pages.extend((page..).zip(blocks.iter().map(|block| Box::new(*block))));
            let end = (page + blocks.len() as u64) * BLOCK as u64;
            if known.size < end {
                known.size = end;
                volume.apply(&Operation::SetSize { object, size: end }).map_err(say)?;
            }
        }
        Operation::SetSize { size, .. } => {
            let Some(known) = model.get_mut(&object) else { return Ok(()) };
            let shrinks = size < known.size;
            known.size = size;
            known.pages.retain(|page, _| *page < size.div_ceil(BLOCK as u64));
            let within = (size % BLOCK as u64) as usize;
            let last = known.pages.get_mut(&(size / BLOCK as u64));
            if let Some(last) = last.filter(|_| shrinks && within != 0) {
                last[within..].fill(0);
            }
        }
        Operation::SetAttributes { .. } => {
            if let Some(known) = model.get_mut(&object) {
                known.attributes = attributes;
            }
        }
        Operation::Keep { .. } => {}
        // It is not made here.
        Operation::Pages { .. } => return Err("pages of a cache".to_owned()),
        Operation::Punch { page, count, .. } => {
            if let Some(known) = model.get_mut(&object) {
                known.pages.retain(|other, _| !(page..page + count).contains(other));
            }
        }
    }
    Ok(())
}

/// What was overwritten in place after the checkpoint may be there, or, after a power failure, be
/// torn: it is written once more then. Gives how many pages were.
fn take_over(
    volume: &mut Logical<&SimDisk>,
    model: &mut Model,
    written: &Written,
    may_be_torn: bool,
) -> Result<u64, String> {
    let mut torn = 0;
    for (object, known) in model {
        for (page, block) in &mut known.pages {
            let newer = written.get(&(*object, *page));
            let Some(newer) = newer.filter(|_| known.class == Class::Data) else { continue };
            let mut found = ZEROS;
            match volume.read(*object, *page, &mut found) {
                Ok(()) if newer.iter().any(|one| **one == found) => **block = found,
                // It is compared with what it was.
                Ok(()) => {}
                Err(why) if may_be_torn && Logical::<&SimDisk>::is_damaged(&why) => {
                    torn += 1;
                    let (object, page, data) = (*object, *page, &block[..]);
                    volume.apply(&Operation::Write { object, page, data }).map_err(say)?;
                }
                Err(why) => return Err(say(why)),
            }
        }
    }
    Ok(torn)
}

fn compare(volume: &mut Logical<&SimDisk>, model: &Model) -> Result<(), String> {
    for object in (0..OBJECTS).map(ObjectId) {
        let Some(known) = model.get(&object) else {
            match volume.exists(object).map_err(say)? {
                true => return Err(format!("{object} is there")),
                false => continue,
            }
        };
        let found = volume.attributes(object).map_err(say)?;
        let same = (found.size, found.class, &found.attributes)
            == (known.size, known.class, &known.attributes);
        if !same {
            return Err(format!("{object} is {found:?}"));
        }
        let last = known.pages.last_key_value().map_or(0, |(page, _)| page + 2);
        for page in 0..last {
            let mut block = ZEROS;
            volume.read(object, page, &mut block).map_err(say)?;
            if known.pages.get(&page).map_or(ZEROS, |known| **known) != block {
                return Err(format!("page {page} of {object} is another one"));
            }
        }
    }
    Ok(())
}
