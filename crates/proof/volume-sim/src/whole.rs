//! The whole of a volume: requests on files and directories, the cache, the layers below, and disks
//! that do everything wrong that disks do. Each process dies at any step, and power fails at any
//! write. What comes of it is compared with a plain directory.

mod cache;
mod damage;
pub mod every;
mod history;
mod kernel;
mod life;
mod recovery;
mod request;
mod stores;
mod torn;

use crate::Random;
use crate::SECRET;
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use crate::outcome::Outcome;
use crate::posix::ours;
use crate::posix::told::Apart;
use crate::sabotage::Sabotage;
use belay_cache::{Capacity, Layout, Shared};
use belay_logical::Logical;
use belay_object::{ObjectId, PAGE};
use belay_posix::check::check;
use belay_posix::{Caller, ROOT};
use belay_store::{DataMode, Parameters};
use cache::Cache;
use history::{History, Oracle, Promises};
use life::Meanwhile;
use rand::{Rng, SeedableRng};
use request::Module;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use stores::{Clock, ID, Process};

/// How long a deed takes.
const TICK: Duration = Duration::from_millis(50);
/// How long it takes until it is seen that a disk is well.
const WHILE: Duration = Duration::from_secs(2);

/// Why a life of a volume comes to an end.
#[derive(Debug)]
enum Stop {
    /// The power has failed.
    Power,
    /// Something is wrong.
    Wrong(String),
}

fn wrong(why: impl std::fmt::Display) -> Stop {
    Stop::Wrong(why.to_string())
}

/// What happens by chance.
#[derive(Clone, Copy, Debug, Default)]
struct Chances {
    /// Processes die.
    deaths: bool,
    /// Disks are in trouble, and stall.
    troubles: bool,
    /// Blocks are damaged.
    damage: bool,
}

/// A volume.
#[derive(Debug)]
pub struct Whole {
    disks: Vec<Rc<SimDisk>>,
    power: Power,
    clock: Clock,
    /// How long a deed takes.
    tick: Duration,
    memory: SimMemory,
    layout: Layout,
    random: Random,
    generation: u32,
    unique: u64,
    chances: Chances,
    /// Data are written in place: a power failure may tear what was being overwritten.
    in_place: bool,
    /// That the power is off is a failure of the power, not the death of a process.
    fails: Rc<Cell<bool>>,
    sabotage: Option<Sabotage>,
    /// Number of the first transaction that is not in the log after each state of the history.
    ends: Vec<u64>,
    promises: Promises,
    /// A disk is in trouble.
    is_ill: bool,
    /// Errors of the disks that were counted.
    errors_before: u64,
    /// A disk may stall.
    stalls: bool,
    /// What was done while it did.
    meanwhile: Meanwhile,
    /// What came of it so far.
    pub outcome: Outcome,
}

/// The processes that live.
#[derive(Debug)]
struct Lives {
    module: Rc<RefCell<Module>>,
    cache: Cache,
    stores: Rc<Process>,
}

impl Whole {
    /// An empty volume, with something wrong in it on purpose or not.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, capacity: Capacity, sabotage: Option<Sabotage>) -> Result<Self, String> {
        let mut random = Random::seed_from_u64(seed);
        let power = Power::default();
        let count: u8 = random.random_range(1..3);
        let new = |_| Rc::new(SimDisk::with(4000, &power));
        let disks: Vec<Rc<SimDisk>> = (0..count).map(new).collect();
        let named = disks.iter().zip(0..);
        let named = named.map(|(disk, number): (_, u8)| ([number + 1; 16], Rc::clone(disk)));
        let twin_offset = [16, 4, 8, 32][random.random_range(0..4)];
        let twin_offset = if sabotage == Some(Sabotage::NoTwins) { 0 } else { twin_offset };
        let in_place = seed.is_multiple_of(2);
        let data = if in_place { DataMode::InPlace } else { DataMode::OutOfPlace };
        let parameters = Parameters { twin_offset, data, ..Parameters::default().small() };
        let made = Logical::format(ID, named.collect(), parameters);
        let made = made.map_err(|why| why.to_string());
        belay_posix::format(&mut made?, Caller::default(), SECRET)
            .map_err(|why| why.to_string())?;
        for disk in &disks {
            disk.sabotage(sabotage);
        }
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        Ok(Self {
            disks,
            power,
            clock: Clock::default(),
            tick: TICK,
            memory,
            layout,
            random,
            generation: 0,
            unique: 0,
            chances: Chances::default(),
            in_place,
            fails: Rc::default(),
            sabotage,
            ends: Vec::new(),
            promises: Promises::default(),
            is_ill: false,
            errors_before: 0,
            stalls: false,
            meanwhile: Meanwhile::default(),
            outcome: Outcome::default(),
        })
    }

    /// Another one that is as this one is now, with chances of its own.
    fn copy(&self, seed: u64) -> Self {
        let power = Power::default();
        Self {
            disks: self.disks.iter().map(|disk| Rc::new(disk.copy(&power))).collect(),
            power,
            clock: Clock::default(),
            fails: Rc::default(),
            memory: self.memory.copy(),
            random: Random::seed_from_u64(seed),
            ends: self.ends.clone(),
            promises: self.promises.clone(),
            meanwhile: Meanwhile::default(),
            outcome: Outcome::default(),
            ..*self
        }
    }

    /// The layers below, opened beside the process that has them.
    fn lower(&self) -> Result<Logical<Rc<SimDisk>>, Stop> {
        Logical::open(self.disks.clone()).map_err(wrong)
    }

    fn shared(&self) -> Shared<SimMemory> {
        Shared::new(self.memory.another(), self.layout)
    }

    fn begin_cache(&mut self, stores: &Rc<Process>) -> Result<Cache, Stop> {
        let view = self.memory.another();
        self.cache_with(stores, view)
    }

    fn cache_with(&mut self, stores: &Rc<Process>, view: SimMemory) -> Result<Cache, Stop> {
        let shared = Shared::new(view.clone(), self.layout);
        let begun = Cache::begin(stores, shared, view, &self.clock, self.random.random());
        self.look_at_stores(stores)?;
        begun.map_err(Stop::Wrong)
    }

    /// All processes begin, at whatever there is.
    fn begin(&mut self) -> Result<Lives, Stop> {
        let random = Random::seed_from_u64(self.random.random());
        let (power, fails, clock) = (&self.power, &self.fails, &self.clock);
        let stores = Process::new(&self.disks, power, fails, clock, random, self.sabotage);
        let cache = self.begin_cache(&stores)?;
        let module = Rc::new(RefCell::new(self.begin_module(&stores)?));
        Ok(Lives { module, cache, stores })
    }

    /// Compares all that is there with what must be.
    fn compare(&mut self, lives: &mut Lives, wanted: &history::State) -> Result<(), Stop> {
        let found = self.tree(lives)?;
        self.outcome.bytes += wanted.differs(&found).map_err(Stop::Wrong)?;
        Ok(())
    }

    /// All that is there.
    fn tree(&mut self, lives: &mut Lives) -> Result<Apart, Stop> {
        self.must(lives, |namespace| ours::tree_apart(namespace, ROOT))
    }

    /// Has all of the volume checked, which must be clean. All of it is in a checkpoint.
    fn check(&self) -> Result<(), Stop> {
        let mut lower = self.lower()?;
        let found = lower.check(&mut |_| {}).map_err(wrong)?;
        if !found.findings.is_empty() {
            return Err(wrong(format!("the check finds: {:?}", found.findings)));
        }
        for object in found.objects.iter().map(ObjectId) {
            self.check_end(&mut lower, object)?;
        }
        let names = check(&mut lower, found.objects, &BTreeSet::new(), &mut |_| {});
        match names.findings.is_empty() {
            true => Ok(()),
            false => Err(wrong(format!("the check of the names finds: {:?}", names.findings))),
        }
    }

    /// What is behind the end of an object in its last page must be zeros: it is seen when that
    /// becomes longer.
    fn check_end(&self, lower: &mut Logical<Rc<SimDisk>>, object: ObjectId) -> Result<(), Stop> {
        let size = lower.attributes(object).map_err(wrong)?.size;
        let mut last = [0; PAGE];
        lower.read(object, size / PAGE as u64, &mut last).map_err(wrong)?;
        let behind = last.get((size % PAGE as u64) as usize..).unwrap_or_default();
        match behind.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(wrong(format!("{object} has something behind its {size} bytes"))),
        }
    }

    /// Works for so many parts of a history, with whatever happens.
    ///
    /// # Errors
    /// What is wrong.
    pub fn run(&mut self, parts: usize) -> Result<(), String> {
        self.parts(parts).map_err(told)
    }

    fn parts(&mut self, parts: usize) -> Result<(), Stop> {
        let mut oracle = Oracle::new().map_err(Stop::Wrong)?;
        let mut lives = self.begin()?;
        for _ in 0..parts {
            let count = self.random.random_range(1..80);
            let seldom = [3, 6, 20][self.random.random_range(0..3)];
            let history = oracle
                .go_on(Vec::new(), count, (seldom, 2), &mut self.random)
                .map_err(Stop::Wrong)?;
            let any = |random: &mut Random| random.random_range(0..3) > 0;
            self.chances = Chances {
                deaths: any(&mut self.random),
                troubles: any(&mut self.random),
                damage: any(&mut self.random),
            };
            self.arm();
            let mut done = 0;
            let ran = self.life(&mut lives, &history, &mut done);
            let ran = ran.and_then(|()| self.finish(&mut lives, &history));
            let ends = ran.is_ok() && self.random.random_range(0..3) == 0;
            let ran = ran.and_then(|()| if ends { self.remount(&mut lives) } else { Ok(()) });
            self.well();
            self.outcome.store_deaths += lives.stores.deaths();
            match ran {
                Ok(()) => {}
                Err(Stop::Power) => {
                    let found;
                    let last = done + 1 + self.meanwhile.borrow().len();
                    (lives, found) = self.recover(&history, last, None)?;
                    let (state, tree) = found;
                    oracle.go_back(&history, state, &tree).map_err(Stop::Wrong)?;
                    let again = oracle.state().map_err(Stop::Wrong)?;
                    again.differs(&tree).map_err(|why| wrong(format!("the oracle: {why}")))?;
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Whether the power fails in this part, and when.
    fn arm(&mut self) {
        let fails = self.random.random_range(0..3) == 0;
        self.fails.set(fails);
        let most = [20, 100, 400][self.random.random_range(0..3)];
        let end = self.power.steps() + self.random.random_range(0..most);
        self.power.end_at(fails.then_some(end));
    }

    /// Everything is brought to the disks, compared, and checked.
    fn finish(&mut self, lives: &mut Lives, history: &History) -> Result<(), Stop> {
        self.well();
        let Some(last) = history.states.last() else { return Ok(()) };
        self.compare(lives, last)?;
        self.settle(lives)?;
        // That was the end of it: it fails some other time.
        self.fails.set(false);
        self.power.end_at(None);
        self.check()?;
        if self.chances.damage {
            self.damage(lives, last)?;
        }
        self.compare(lives, last)
    }
}

fn told(stop: Stop) -> String {
    match stop {
        Stop::Power => "there is no power where none was to fail".to_owned(),
        Stop::Wrong(why) => why,
    }
}
