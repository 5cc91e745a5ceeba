//! The process of the stores: the service that ships, on simulated disks. It dies with its power,
//! or when it is killed, and whoever asks then finds its next life. What is asked and answered goes
//! as bytes, as over a socket.

use crate::Random;
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use crate::sabotage::Sabotage;
use belay_channel::{Lost, StoreAnswer, StoreAsk, Transport, frame};
use belay_logical::Logical;
use belay_service::Stores;
use belay_service::stores::{Flush, Surroundings};
use rand::Rng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// The number of the volume.
pub(super) const ID: [u8; 16] = [9; 16];

/// What the lives of the process have in common.
#[derive(Debug)]
pub(super) struct Process {
    given: Given,
    power: Power,
    /// That the power is off is a failure of the power, not the death of this process.
    fails: Rc<Cell<bool>>,
    service: RefCell<Stores<Given>>,
    /// Which life it is.
    life: Cell<u64>,
    /// How many have connected.
    clients: Cell<u64>,
    /// Who has said last that it writes.
    writer: Cell<u64>,
    deaths: Cell<u64>,
    /// The next life may die of what it is asked as well.
    dies_again: Cell<bool>,
    /// What those have sent who are dead.
    late: RefCell<Vec<Late>>,
    /// Answers that came later, to whom: who waits may not be the one that has seen them come.
    told: RefCell<BTreeMap<u64, StoreAnswer>>,
    random: RefCell<Random>,
    sabotage: Option<Sabotage>,
}

/// A message that is not read before so many others are.
#[derive(Debug)]
struct Late {
    after: u64,
    client: u64,
    bytes: Vec<u8>,
}

impl Process {
    /// One with these disks, which have that power.
    pub(super) fn new(
        disks: &[Rc<SimDisk>],
        power: &Power,
        fails: &Rc<Cell<bool>>,
        clock: &Clock,
        random: Random,
        sabotage: Option<Sabotage>,
    ) -> Rc<Self> {
        let given = Given {
            disks: disks.into(),
            clock: clock.clone(),
            branches: Rc::default(),
            flushing: Rc::default(),
        };
        Rc::new(Self {
            service: RefCell::new(Stores::new(ID, given.clone())),
            given,
            power: power.clone(),
            fails: Rc::clone(fails),
            life: Cell::new(0),
            clients: Cell::new(0),
            writer: Cell::new(0),
            deaths: Cell::new(0),
            dies_again: Cell::new(false),
            late: RefCell::default(),
            told: RefCell::default(),
            random: RefCell::new(random),
            sabotage,
        })
    }

    /// It is killed. Its next life begins.
    pub(super) fn restart(&self) {
        self.service.replace(Stores::new(ID, self.given.clone()));
        self.life.set(self.life.get() + 1);
        self.given.flushing.take();
        self.late.take();
        self.told.take();
    }

    /// If it has died, its next life begins. Not if it is the power that has failed.
    pub(super) fn look(&self) {
        if self.power.is_off() && !self.fails.get() {
            self.power.end_at(None);
            self.deaths.set(self.deaths.get() + 1);
            self.restart();
            let mut random = self.random.borrow_mut();
            if self.dies_again.get() && random.random_range(0..6) == 0 {
                let most = [3, 20, 100][random.random_range(0..3)];
                self.power.end_at(Some(self.power.steps() + random.random_range(0..most)));
            }
        }
    }

    /// Whether the next life of one that dies may die soon as well.
    pub(super) fn dies_again(&self, again: bool) {
        self.dies_again.set(again);
    }

    /// How often it has died since that was asked last.
    pub(super) fn deaths(&self) -> u64 {
        self.deaths.take()
    }

    /// Whether it answers nobody for now: there is no power, or it waits for a disk.
    pub(super) fn is_away(&self) -> bool {
        self.power.is_off() && self.fails.get() || self.service.try_borrow_mut().is_err()
    }

    fn lives(&self, life: u64) -> Option<()> {
        (life == self.life.get() && !self.power.is_off()).then_some(())
    }

    /// Answers somebody; `None` if it dies first, or the asker does when it has to wait.
    fn ask(&self, (life, client): (u64, u64), bytes: &[u8], fate: &Fate) -> Option<StoreAnswer> {
        self.lives(life)?;
        self.turn()?;
        let ask = received(bytes);
        if ask == StoreAsk::Write {
            self.writer.set(client);
        }
        let answer = self.service.try_borrow_mut().ok()?.answer(client, ask);
        self.lives(life)?;
        if answer.is_some() {
            return answer;
        }
        if fate.in_wait.get() {
            return None;
        }
        loop {
            let goes_on = self.go_on()?;
            self.lives(life)?;
            match self.told.borrow_mut().remove(&client) {
                None if goes_on => {}
                None => {
                    return Some(StoreAnswer::Refused("nobody answers that any more".to_owned()));
                }
                answer => return answer,
            }
        }
    }

    /// A flush comes to its end, and what was waiting for that is answered. `Some(false)` if there
    /// is none.
    fn go_on(&self) -> Option<bool> {
        let Some(flushing) = self.given.flushing.take() else { return Some(false) };
        // Meanwhile it answers others, which may bring that flush to its end as well.
        flushing.make();
        self.told.borrow_mut().extend(self.service.try_borrow_mut().ok()?.later());
        Some(true)
    }

    /// Between two questions: what the dead have asked for goes on, and what they have sent is
    /// read.
    fn turn(&self) -> Option<()> {
        if self.given.flushing.borrow().is_some() && self.random.borrow_mut().random() {
            self.go_on()?;
        }
        let mut late = self.late.take();
        late.iter_mut().for_each(|one| one.after = one.after.saturating_sub(1));
        let due;
        (due, late) = late.into_iter().partition(|one| one.after == 0);
        self.late.replace(late);
        for Late { client, bytes, .. } in due {
            let is_wrong = self.sabotage == Some(Sabotage::SecondWriter);
            let client = if is_wrong { self.writer.get() } else { client };
            self.service.try_borrow_mut().ok()?.answer(client, received(&bytes));
        }
        (!self.power.is_off()).then_some(())
    }

    /// Somebody who dies has sent this. It may take a long time until it is read. Who says that it
    /// writes is heard before all who connect after it.
    fn comes_late(&self, client: u64, ask: &StoreAsk, bytes: Vec<u8>) {
        let mut random = self.random.borrow_mut();
        let most = [2, 20, 200][random.random_range(0..3)];
        let after = random.random_range(1..most);
        let after = if *ask == StoreAsk::Write { 1 } else { after };
        self.late.borrow_mut().push(Late { after, client, bytes });
    }
}

/// When one who asks dies, besides at a store to the memory.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// After so many questions, when it has sent the next one.
    pub(super) sent: Cell<Option<u64>>,
    /// When it has to wait for an answer.
    pub(super) in_wait: Cell<bool>,
}

/// A way to ask the process.
#[derive(Debug)]
pub(super) struct Link {
    process: Rc<Process>,
    /// Which life has accepted it, and by which number it is known there.
    open: Option<(u64, u64)>,
    /// Who asks: a dead one asks for nothing.
    by: SimMemory,
    fate: Rc<Fate>,
    writes: bool,
}

impl Link {
    /// For the module with that view of the memory.
    pub(super) fn reader(process: &Rc<Process>, by: SimMemory) -> Self {
        let (process, fate) = (Rc::clone(process), Rc::default());
        Self { process, open: None, by, fate, writes: false }
    }

    /// For the cache with that view of the memory, and its fate.
    pub(super) fn writer(process: &Rc<Process>, by: SimMemory, fate: Rc<Fate>) -> Self {
        Self { process: Rc::clone(process), open: None, by, fate, writes: true }
    }

    fn dies(&self) {
        self.by.dies_after(Some(0));
    }

    /// Gives the answer of the life that it is connected to.
    fn answer(&mut self, ask: &StoreAsk) -> Option<StoreAnswer> {
        let open = self.open.filter(|_| !self.by.is_dead())?;
        let bytes = sent(ask);
        let left = self.fate.sent.get();
        self.fate.sent.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) {
            self.dies();
            self.process.comes_late(open.1, ask, bytes);
            return None;
        }
        let answer = self.process.ask(open, &bytes, &self.fate);
        if answer.is_none() && self.fate.in_wait.take() && self.process.lives(open.0).is_some() {
            self.dies();
        }
        answer.map(|answer| received(&sent(&answer)))
    }
}

impl Transport for Link {
    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn open(&mut self) -> Result<(), Lost> {
        if self.open.is_none() && !self.gives_up() {
            let process = &self.process;
            process.look();
            process.clients.set(process.clients.get() + 1);
            self.open = Some((process.life.get(), process.clients.get()));
        }
        self.open.map(|_| ()).ok_or(Lost)
    }

    fn ask(&mut self, ask: &StoreAsk) -> Result<StoreAnswer, Lost> {
        let mut answer = self.answer(ask);
        if answer.is_none() {
            self.open = None;
        }
        let is_wrong = self.process.sabotage == Some(Sabotage::UntoldDeath) && self.writes;
        if answer.is_none() && is_wrong && self.open().is_ok() {
            self.answer(&StoreAsk::Write);
            answer = self.answer(ask);
        }
        answer.ok_or(Lost)
    }

    fn gives_up(&self) -> bool {
        self.by.is_dead() || self.process.is_away()
    }
}

fn sent(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::send(&mut bytes, message).expect("a message that can be sent");
    bytes
}

fn received<T: DeserializeOwned>(mut bytes: &[u8]) -> T {
    frame::receive(&mut bytes).expect("what was sent")
}

/// What the process gives to the service.
#[derive(Clone, Debug)]
struct Given {
    disks: Rc<[Rc<SimDisk>]>,
    clock: Clock,
    /// How many branches there were.
    branches: Rc<Cell<u64>>,
    /// The flush that has not come to its end.
    flushing: Rc<RefCell<Option<Flushing>>>,
}

impl Surroundings for Given {
    type Disk = Rc<SimDisk>;
    type Flush = Flushing;

    fn disks(&mut self) -> anyhow::Result<Vec<Rc<SimDisk>>> {
        Ok(self.disks.to_vec())
    }

    fn branch(&mut self) -> u64 {
        self.branches.set(self.branches.get() + 1);
        self.branches.get()
    }

    fn flush<'d>(
        &mut self,
        disks: impl Iterator<Item = &'d Rc<SimDisk>>,
    ) -> anyhow::Result<Flushing> {
        let disks = disks.map(Rc::clone).collect();
        let flushing = Flushing { disks, done: Rc::default() };
        self.flushing.replace(Some(flushing.clone()));
        Ok(flushing)
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn opened(&mut self, _: &Logical<Rc<SimDisk>>, _: Duration) {}
}

/// A flush of disks, which comes to its end when somebody has it do so.
#[derive(Clone, Debug)]
struct Flushing {
    disks: Rc<[Rc<SimDisk>]>,
    done: Rc<RefCell<Option<Vec<io::Result<()>>>>>,
}

impl Flushing {
    fn make(&self) {
        if !self.is_over() {
            use belay_disk::Disk;
            let done = self.disks.iter().map(|disk| disk.flush()).collect();
            self.done.replace(Some(done));
        }
    }
}

impl Flush for Flushing {
    fn is_over(&self) -> bool {
        self.done.borrow().is_some()
    }

    fn end(self) -> Vec<io::Result<()>> {
        self.make();
        self.done.borrow_mut().replace(Vec::new()).unwrap_or_default()
    }
}

/// The time, which goes on when somebody says so.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Rc<Cell<Duration>>);

impl Clock {
    pub(super) fn now(&self) -> Duration {
        self.0.get()
    }

    pub(super) fn goes_on(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}
