//! A part of a history is done, with deaths, troubles of the disks, and the power failing on the
//! way.

use super::history::{Deed, History, Promises};
use super::request::Answer;
use super::stores::Process;
use super::{Lives, Stop, WHILE, Whole, wrong};
use crate::disk::{SimDisk, TROUBLES};
use crate::posix::told::Told;
use crate::posix::{Act, ours};
use belay_posix::Error;
use rand::Rng;
use std::cell::RefCell;
use std::rc::Rc;

/// What was done while a disk stalled: each of these acts, with its result.
pub(super) type Meanwhile = Rc<RefCell<Vec<Told>>>;

impl Whole {
    /// Does all of a part; `done` is how many of its deeds are.
    pub(super) fn life(
        &mut self,
        lives: &mut Lives,
        history: &History,
        done: &mut usize,
    ) -> Result<(), Stop> {
        self.promises = Promises::default();
        self.ends = vec![self.shared().published()];
        let is_traced = std::env::var_os("BELAY_TRACE").is_some();
        while let Some(deed) = history.deeds.get(*done) {
            if is_traced {
                eprintln!("{done}: {deed:.200?}: {:.200?}", history.told.get(*done));
            }
            self.clock.goes_on(self.tick);
            if self.chances.troubles {
                self.maybe_trouble();
            }
            self.maybe_due(lives)?;
            self.maybe_stall(lives, history, *done);
            match deed {
                Deed::Act(act) => self.act(lives, act, history.told.get(*done))?,
                Deed::Forget => self.forget(lives)?,
                Deed::Checkpoint => {
                    let _ = self.checkpoint(lives)?;
                }
                Deed::Sync(path) => self.sync(lives, history, path, *done)?,
            }
            self.outcome.operations += 1;
            *done += 1;
            let end = self.shared().published();
            self.ends.push(end);
            self.take_over(history, done)?;
            if is_traced
                && !self.is_ill
                && let Some(state) = history.states.get(*done)
            {
                self.compare(lives, state)?;
            }
            if self.chances.deaths
                && self.random.random_range(0..30) == 0
                && let Some(state) = history.states.get(*done)
            {
                self.well();
                self.compare(lives, state)?;
            }
        }
        Ok(())
    }

    /// A request of an application, which must give what it gives on a plain directory. If a disk
    /// does not let it, it is made again when that is well.
    pub(super) fn act(
        &mut self,
        lives: &mut Lives,
        act: &Act,
        told: Option<&Told>,
    ) -> Result<(), Stop> {
        loop {
            let here = self.request(lives, true, |namespace| ours::act(namespace, act, None))?;
            let is_right = match (&here, told) {
                (Answer::Failed(why), _) => {
                    self.must_be_ill(why)?;
                    continue;
                }
                // A life that died has the answer.
                (Answer::ByTheDead, Some(told)) => told.is_ok(),
                (Answer::Done(here), Some(Ok(there))) => here == there,
                (Answer::Refused(here), Some(Err(there))) => here == there,
                _ => false,
            };
            return match is_right {
                true => Ok(()),
                false => Err(wrong(format!("{act:.200?}: {here:.200?}, not {told:.200?}"))),
            };
        }
    }

    /// Something fails: a disk must be ill, and is made well.
    pub(super) fn must_be_ill(&mut self, why: &str) -> Result<(), Stop> {
        match self.is_ill {
            true => {
                self.well();
                Ok(())
            }
            false => Err(wrong(why)),
        }
    }

    /// Disks are well again, and have been for as long as it takes until that is seen.
    pub(super) fn well(&mut self) {
        let errors = |disk: &Rc<SimDisk>| disk.troubles().errors();
        let count = |disks: &[Rc<SimDisk>]| disks.iter().map(errors).sum::<u64>();
        self.outcome.disk_errors += count(&self.disks) - self.errors_before;
        for disk in &self.disks {
            disk.troubles().end();
        }
        self.errors_before = count(&self.disks);
        self.is_ill = false;
        self.clock.goes_on(WHILE);
    }

    /// A disk may get into trouble, be it in the middle of something, or be well again.
    fn maybe_trouble(&mut self) {
        if self.is_ill {
            if self.random.random_range(0..4) == 0 {
                self.well();
            }
            return;
        }
        if self.random.random_range(0..10) == 0 {
            let disk = &self.disks[self.random.random_range(0..self.disks.len())];
            let trouble = TROUBLES[self.random.random_range(0..TROUBLES.len())];
            let most = [1, 10, 60][self.random.random_range(0..3)];
            disk.troubles().begin(trouble, self.random.random_range(0..most));
            *self.outcome.troubles.entry(trouble).or_default() += 1;
            self.is_ill = true;
        }
    }

    /// A disk may stall in the middle of the next checkpoint or sync: the module goes on with what
    /// it can do alone.
    fn maybe_stall(&mut self, lives: &mut Lives, history: &History, at: usize) {
        let waits = matches!(history.deeds.get(at), Some(Deed::Checkpoint | Deed::Sync(_)));
        if !self.chances.troubles || !waits || self.random.random_range(0..3) > 0 {
            return;
        }
        self.stalls = true;
        let acts = history.deeds.iter().skip(at + 1).map_while(|deed| match deed {
            Deed::Act(act) => Some(act.clone()),
            _ => None,
        });
        let acts: Vec<Act> = acts.take(6).collect();
        let first = self.unique + 1;
        self.unique += acts.len() as u64;
        let (module, told) = (Rc::clone(&lives.module), Meanwhile::default());
        self.meanwhile = Rc::clone(&told);
        let meanwhile = move || {
            for (act, unique) in acts.into_iter().zip(first..) {
                // If it is the one who waits, it can do nothing else.
                let Ok(mut module) = module.try_borrow_mut() else { return };
                let done = module.once(unique, None, |namespace| ours::act(namespace, &act, None));
                let done = match done {
                    Ok(done) => Ok(done),
                    Err(Error::Errno(errno)) => Err(errno),
                    // It needs the stores, or room, and waits as well.
                    Err(_) => return,
                };
                told.borrow_mut().push(done);
            }
        };
        let disk = &self.disks[self.random.random_range(0..self.disks.len())];
        let most = [3, 20, 100][self.random.random_range(0..3)];
        disk.troubles().stall(self.random.random_range(0..most), Box::new(meanwhile));
    }

    /// What was done while a disk stalled is done.
    fn take_over(&mut self, history: &History, done: &mut usize) -> Result<(), Stop> {
        // One that did not come is none any more: what was to be done meanwhile comes now.
        let left = self.disks.iter().filter(|disk| disk.troubles().answer()).count();
        self.outcome.stalls += u64::from(std::mem::take(&mut self.stalls) && left == 0);
        let meanwhile = std::mem::take(&mut self.meanwhile);
        for here in meanwhile.borrow_mut().drain(..) {
            let there = history.told.get(*done);
            if Some(&here) != there {
                let deed = history.deeds.get(*done);
                return Err(wrong(format!("{deed:.200?}: {here:.200?}, not {there:.200?}")));
            }
            self.outcome.operations += 1;
            self.outcome.done_in_stalls += 1;
            *done += 1;
            let end = self.shared().published();
            self.ends.push(end);
        }
        Ok(())
    }

    /// What has no name is forgotten by the kernel, as a request of its own.
    pub(super) fn forget(&mut self, lives: &mut Lives) -> Result<(), Stop> {
        loop {
            let done = self.request(lives, true, |namespace| namespace.forget())?;
            return match done {
                Answer::ByTheDead | Answer::Done(()) => Ok(()),
                Answer::Failed(why) => {
                    self.must_be_ill(&why)?;
                    continue;
                }
                answer => Err(wrong(format!("forget: {answer:?}"))),
            };
        }
    }

    /// Cache or stores may die in what comes next.
    fn arm_deaths(&mut self, lives: &Lives) {
        if !self.chances.deaths {
            return;
        }
        lives.stores.dies_again(true);
        let random = &mut self.random;
        match random.random_range(0..18) {
            0..3 => {
                let most = [8, 60, 4000][random.random_range(0..3)];
                lives.cache.view.dies_after(Some(random.random_range(0..most)));
            }
            3..6 if !self.fails.get() => {
                let most = [3, 20, 100][random.random_range(0..3)];
                let end = self.power.steps() + random.random_range(0..most);
                self.power.end_at(Some(end));
            }
            6..8 => {
                let most = [2, 8, 60][random.random_range(0..3)];
                lives.cache.fate.sent.set(Some(random.random_range(0..most)));
            }
            8 => lives.cache.fate.in_wait.set(true),
            _ => {}
        }
    }

    /// What has died is replaced; true if that was the cache, which was asked for something.
    fn bury(&mut self, lives: &mut Lives) -> Result<bool, Stop> {
        let is_dead = lives.cache.view.is_dead();
        if self.chances.deaths {
            lives.cache.view.dies_after(is_dead.then_some(0));
            lives.cache.fate.sent.set(None);
            lives.cache.fate.in_wait.set(false);
            lives.stores.dies_again(false);
        }
        self.look_at_stores(&lives.stores)?;
        if self.chances.deaths && !self.fails.get() {
            self.power.end_at(None);
        }
        if is_dead {
            self.outcome.cache_deaths += 1;
            lives.cache = self.begin_cache(&lives.stores)?;
            if self.random.random() {
                lives.stores.restart();
            }
        }
        Ok(is_dead)
    }

    /// The stores may have died, and have a next life then; an error if all of it has, with the
    /// power.
    pub(super) fn look_at_stores(&mut self, stores: &Process) -> Result<(), Stop> {
        if self.power.is_off() && self.fails.get() {
            return Err(Stop::Power);
        }
        stores.look();
        self.outcome.store_deaths += stores.deaths();
        Ok(())
    }

    /// What the memory says to be on the stores is promised.
    fn note_checkpoint(&mut self) {
        let end = self.shared().durable();
        let state = self.ends.iter().rposition(|one| *one <= end).unwrap_or(0);
        self.promises.checkpoint = self.promises.checkpoint.max(state);
    }

    /// Takes a checkpoint; why not, if a disk does not let it.
    pub(super) fn checkpoint(&mut self, lives: &mut Lives) -> Result<Result<(), String>, Stop> {
        loop {
            self.arm_deaths(lives);
            let taken = lives.cache.checkpoint();
            self.note_checkpoint();
            if self.bury(lives)? {
                continue;
            }
            return match taken {
                Ok(()) => Ok(Ok(())),
                Err(why) if self.is_ill => {
                    self.outcome.refused += 1;
                    Ok(Err(why))
                }
                Err(why) => Err(Stop::Wrong(why)),
            };
        }
    }

    /// The cache does what is due.
    fn maybe_due(&mut self, lives: &mut Lives) -> Result<(), Stop> {
        if lives.cache.due() > self.clock.now() {
            return Ok(());
        }
        // It mostly has nothing to do.
        if self.random.random_range(0..8) == 0 {
            self.arm_deaths(lives);
        }
        lives.cache.act();
        self.note_checkpoint();
        self.bury(lives).map(|_| ())
    }

    /// The mount ends, and another one begins, of which the memory is a new one.
    pub(super) fn remount(&mut self, lives: &mut Lives) -> Result<(), Stop> {
        loop {
            self.arm_deaths(lives);
            let ended = lives.cache.end();
            if !self.bury(lives)? {
                ended.map_err(Stop::Wrong)?;
                break;
            }
        }
        if !self.shared().is_empty() {
            return Err(wrong("the last checkpoint does not have all that was published"));
        }
        self.memory.clear();
        *lives = self.begin()?;
        Ok(())
    }

    /// Syncs a file. What was promised is noted.
    fn sync(
        &mut self,
        lives: &mut Lives,
        history: &History,
        path: &str,
        at: usize,
    ) -> Result<(), Stop> {
        let object = loop {
            match self.request(lives, false, |namespace| ours::object_at(namespace, path))? {
                Answer::Done(object) => break object,
                Answer::Failed(why) => self.must_be_ill(&why)?,
                answer => return Err(wrong(format!("{path}: {answer:?}"))),
            }
        };
        loop {
            self.arm_deaths(lives);
            let synced = lives.cache.sync(object);
            self.note_checkpoint();
            if synced.is_ok() {
                self.promise(history, path, at);
            }
            if self.bury(lives)? {
                continue;
            }
            match synced {
                Ok(()) => return Ok(()),
                Err(_) if self.is_ill => {
                    self.outcome.refused += 1;
                    return Ok(());
                }
                Err(why) => return Err(Stop::Wrong(why)),
            }
        }
    }

    fn promise(&mut self, history: &History, path: &str, at: usize) {
        self.promises.names = self.promises.names.max(at);
        let file = history.states.get(at).and_then(|state| state.tree.get(&format!("/{path}")));
        if let Some((_, Some(file))) = file {
            self.promises.synced.insert(*file, at);
        }
    }

    /// Takes checkpoints until nothing is under way.
    pub(super) fn settle(&mut self, lives: &mut Lives) -> Result<(), Stop> {
        match self.checkpoint(lives)? {
            Ok(()) if self.shared().is_empty() => Ok(()),
            Ok(()) => Err(wrong("a checkpoint does not have all that was published")),
            Err(why) => Err(Stop::Wrong(why)),
        }
    }
}
