//! Cache, logical layer and stores at work, each of which dies at any step, alone or with the
//! others, or loses power.

mod bringing;
mod full;
mod left;
mod looks;
mod torn;
mod transactions;

use crate::Random;
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use crate::sabotage::Sabotage;
use belay_cache::answers::Answers;
use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{ObjectId, PAGE};
use belay_store::{DataMode, Parameters};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Objects that there can be.
const OBJECTS: u64 = 40;
/// Pages of an object that are written.
const PAGES: u64 = 30;

/// What an object must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    size: u64,
    attributes: Vec<u8>,
    pages: BTreeMap<u64, u8>,
}

type Model = BTreeMap<ObjectId, Known>;
type Lower<'d> = Logical<&'d SimDisk>;
type Failure = Error<belay_logical::Error>;

/// What came of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Transactions that were published.
    pub transactions: u64,
    /// Checkpoints that were taken.
    pub checkpoints: u64,
    /// Deaths of the namespace module in the middle of something.
    pub module_deaths: u64,
    /// Of these, those in which the transaction was published all the same.
    pub published_by_the_dead: u64,
    /// Deaths of the cache.
    pub cache_deaths: u64,
    /// Deaths of the layers below.
    pub lower_deaths: u64,
    /// Of cache or lower layers: those at the very end of a checkpoint, which is not taken again.
    pub at_the_end: u64,
    /// Power failures.
    pub power_failures: u64,
    /// Objects that were synced.
    pub syncs: u64,
    /// Of these, those that a power failure met before the next checkpoint.
    pub promises_kept: u64,
    /// Transactions for which there was no room.
    pub refusals: u64,
    /// Blocks that the stores took, at most, for what transactions had to pay for.
    pub taken: u64,
    /// What they had paid for.
    pub paid: u64,
    /// Pages that were torn.
    pub torn: u64,
    /// Pages that were read and compared.
    pub pages: u64,
}

/// A volume without its namespace.
pub struct Stack {
    disks: Vec<SimDisk>,
    power: Power,
    memory: SimMemory,
    layout: Layout,
    random: Random,
    generation: u32,
    unique: u64,
    /// What all transactions that were published come to.
    now: Model,
    /// The same for those that are, or may be, in a checkpoint.
    checkpoints: BTreeMap<u64, Model>,
    /// Objects that were synced, and not changed since: what they must be after a power failure.
    promised: BTreeMap<ObjectId, Known>,
    /// What was there at the last sync and after it: one of these is right after a power failure.
    names: Vec<Model>,
    /// Data are written in place: of pages that were overwritten since the last checkpoint, any
    /// content may be there, or none.
    in_place: bool,
    /// What pages have become since then.
    overwritten: torn::Overwritten,
    /// Objects that take room, and are not looked at.
    ballast: Vec<ObjectId>,
    sabotage: Option<Sabotage>,
    /// What came of it so far.
    pub outcome: Outcome,
}

/// The processes of a volume that live.
struct Lives<'d> {
    module: (Publisher<SimMemory>, SimMemory),
    cache: (Cleaner<SimMemory>, SimMemory),
    lower: Lower<'d>,
}

impl Stack {
    /// A new volume.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, stores: u8, capacity: Capacity) -> Result<Self, String> {
        Self::with(seed, stores, capacity, 6000)
    }

    /// The same with disks of so many blocks.
    ///
    /// # Errors
    /// What is wrong.
    pub fn with(seed: u64, stores: u8, capacity: Capacity, blocks: u64) -> Result<Self, String> {
        let power = Power::default();
        let disks: Vec<SimDisk> = (0..stores).map(|_| SimDisk::with(blocks, &power)).collect();
        let named = disks.iter().zip(0..).map(|(disk, number): (_, u8)| ([number + 1; 16], disk));
        let twin_offset = [16, 4, 8, 32][(seed % 4) as usize];
        let in_place = seed / 4 % 2 == 1;
        let data = if in_place { DataMode::InPlace } else { DataMode::OutOfPlace };
        let parameters = Parameters { twin_offset, data, ..Parameters::default().small() };
        let made = Logical::format([9; 16], named.collect(), parameters);
        let made = made.map_err(|why| why.to_string())?;
        let (epoch, room) = (made.epoch() - 1, made.room().map_err(|why| why.to_string())?);
        drop(made);
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        Shared::new(memory.another(), layout).initialize(epoch, 0, &room);
        Ok(Self {
            disks,
            power,
            memory,
            layout,
            random: Random::seed_from_u64(seed),
            generation: 0,
            unique: 0,
            now: Model::new(),
            checkpoints: BTreeMap::from([(epoch, Model::new())]),
            promised: BTreeMap::new(),
            names: Vec::new(),
            in_place,
            overwritten: torn::Overwritten::new(),
            ballast: Vec::new(),
            sabotage: None,
            outcome: Outcome::default(),
        })
    }

    /// Has namespace modules that begin from now on do something wrong.
    pub fn sabotage(&mut self, sabotage: Sabotage) {
        self.sabotage = Some(sabotage);
    }

    /// Works until so many things are done, with deaths in between.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(&mut self, count: usize) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let done = self.run_on(&disks, count);
        self.disks = disks;
        done
    }

    /// Works for a while without coming to an end: what was published stays in the memory.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run_some(&mut self, count: usize) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let begun = self.begin(&disks);
        let done = begun
            .and_then(|mut lives| (0..count).try_for_each(|_| self.transact(&disks, &mut lives)));
        self.disks = disks;
        done
    }

    fn run_on(&mut self, disks: &[SimDisk], count: usize) -> Result<(), String> {
        let mut lives = self.begin(disks)?;
        for _ in 0..count {
            match self.random.random_range(0..100) {
                0..70 => {
                    self.transact(disks, &mut lives)?;
                    // What is kept of these must not be older than what is published next.
                    for _ in 0..self.random.random_range(0..8) {
                        self.look(&mut lives)?;
                    }
                }
                70..80 => {
                    self.checkpoint(disks, &mut lives)?;
                    for _ in 0..self.random.random_range(0..60) {
                        self.look(&mut lives)?;
                    }
                }
                80..90 => self.look(&mut lives)?,
                90..97 => self.sync(disks, &mut lives)?,
                97 => lives = self.begin(disks)?,
                98 => lives = self.lose_power(disks)?,
                _ => self.compare(&mut lives)?,
            }
        }
        self.compare(&mut lives)?;
        // All of it reaches the stores, and nothing is left in the memory.
        self.begin_cache().0.checkpoint(&mut lives.lower).map_err(|why| why.to_string())?;
        self.compare(&mut lives)?;
        let shared = Shared::new(self.memory.another(), self.layout);
        lives.module = self.begin_module(None)?;
        for (what, pool) in [("frames", shared.frames()), ("cells", shared.cells())] {
            let (free, all) = (pool.free(), pool.count());
            if free != all {
                return Err(format!("{free} of {all} {what} are free"));
            }
        }
        self.check(disks)
    }

    /// A process gone mad flips so many bits of the memory; the others go on with what they find.
    /// Whatever they say of it, none of them may panic, nor work for ever.
    ///
    /// # Errors
    /// If the volume cannot be opened, whose disks nobody has touched.
    pub fn scribble(&mut self, flips: usize) -> Result<(), String> {
        let disks = std::mem::take(&mut self.disks);
        let mut lower = open(&disks)?;
        for _ in 0..flips {
            // Most of the memory is pages: what is before them is met as often.
            let most = [8, self.layout.frames, self.layout.words][self.random.random_range(0..3)];
            let (at, bit) = (self.random.random_range(0..most), self.random.random_range(0..64));
            self.memory.flip(at, bit);
        }
        let shared = || Shared::new(self.memory.another(), self.layout);
        let attached = Publisher::attach::<belay_logical::Error>(shared(), 1 << 20);
        if let Ok(mut module) = attached {
            for object in (0..OBJECTS).map(ObjectId) {
                let _ = module.attributes(&mut lower, object);
                let _ = module.read(&mut lower, object, 0, &mut [0; PAGE]);
            }
            let mut draft = module.draft();
            let _ = module.write::<belay_logical::Error>(&mut draft, ObjectId(1), 0, &[[1; PAGE]]);
            let _ = module.commit::<belay_logical::Error>(draft, 1, b"");
        }
        let cleaner = Cleaner::new(shared());
        let _ = cleaner.sync(&mut lower, &[ObjectId(1)]);
        let _ = cleaner.checkpoint(&mut lower);
        drop(lower);
        self.disks = disks;
        Ok(())
    }

    fn check(&self, disks: &[SimDisk]) -> Result<(), String> {
        let mut lower = open(disks)?;
        for store in lower.stores() {
            let report = store.check().map_err(|why| why.to_string())?;
            if !report.findings.is_empty() {
                return Err(format!("the check finds: {:?}", report.findings));
            }
        }
        Ok(())
    }

    /// All processes begin, at whatever there is.
    fn begin<'d>(&mut self, disks: &'d [SimDisk]) -> Result<Lives<'d>, String> {
        self.power.end_at(None);
        let lower = open(disks)?;
        let module = self.begin_module(None)?;
        Ok(Lives { module, cache: self.begin_cache(), lower })
    }

    fn begin_cache(&self) -> (Cleaner<SimMemory>, SimMemory) {
        let view = self.memory.another();
        (Cleaner::new(Shared::new(view.clone(), self.layout)), view)
    }

    /// A life of the namespace module begins. If the one before died when it published request
    /// `open`, with that effect, this tells whether it was published.
    fn begin_module(
        &mut self,
        open: Option<(u64, Model)>,
    ) -> Result<(Publisher<SimMemory>, SimMemory), String> {
        self.generation += 1;
        let view = self.memory.another().sabotaged(self.sabotage, self.layout);
        let shared = Shared::new(view.clone(), self.layout);
        // Nothing, little and all of what is read from below is kept.
        let kept = [0, 1 << 20, 1 << 24][self.random.random_range(0..3)];
        let module = Publisher::attach(shared.clone(), self.generation);
        let module = module.map_err(|why: Failure| why.to_string())?.keeping(kept);
        if let Some((unique, effect)) = open
            && let Some(reply) = Answers::default().to(&shared, unique)
        {
            if reply != transactions::reply_to(unique) {
                return Err(format!("request {unique} has another reply"));
            }
            self.outcome.published_by_the_dead += 1;
            self.published(effect);
        }
        Ok((module, view))
    }
}

/// The layers below, begun anew.
fn open(disks: &[SimDisk]) -> Result<Lower<'_>, String> {
    Logical::open(disks.iter().collect()).map_err(|why| why.to_string())
}
