//! The namespace module at work, compared with a plain directory: each operation must do the same
//! to both, and say the same. The module dies at any store, and the request is made again, as belay
//! does.

pub mod acts;
pub(crate) mod names;
pub(crate) mod ours;
pub(crate) mod plain;
pub(crate) mod told;

pub use acts::{Act, random_act};

use crate::Random;
use crate::SECRET;
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use belay_cache::answers::Answers;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::ObjectId;
use belay_posix::check::check;
use belay_posix::{Caller, Error, Memo, Namespace, ROOT, Time, View};
use belay_store::Parameters;
use plain::Plain;
use rand::{Rng, SeedableRng};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use told::{Moments, changed};

type Failure = Error<belay_logical::Error>;

/// Something that is open in both.
#[derive(Debug)]
struct Open {
    here: ObjectId,
    there: OwnedFd,
}

/// What came of the beginning of a life.
enum Begun {
    Life(Box<Publisher<SimMemory>>),
    /// It has died at once.
    Dead,
    /// The one before has done the request.
    Done,
}

/// A volume with its namespace, beside a plain directory.
pub struct Compared {
    disk: SimDisk,
    memory: SimMemory,
    layout: Layout,
    random: Random,
    generation: u32,
    /// The module, with its view of the memory, while it lives.
    life: Option<(Publisher<SimMemory>, SimMemory)>,
    unique: u64,
    memo: Memo,
    plain: Plain,
    open: Vec<Open>,
    /// What has no name any more, and is not forgotten.
    nameless: BTreeSet<ObjectId>,
    /// Deaths of the module in the middle of a request.
    pub deaths: u64,
    /// Of these, those after which the request had been done.
    pub done_by_the_dead: u64,
}

impl Compared {
    /// An empty volume beside that empty directory.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, oracle: &Path) -> Result<Self, String> {
        let disk = SimDisk::with(20_000, &Power::default());
        let made = Logical::format([9; 16], vec![([1; 16], &disk)], Parameters::default().small());
        let made = made.map_err(|why| why.to_string())?;
        let (epoch, room) = (made.epoch() - 1, made.room().map_err(|why| why.to_string())?);
        drop(made);
        let layout = Layout::new(Capacity { frames: 4000, slots: 500 });
        let memory = SimMemory::new(layout.words);
        Shared::new(memory.another(), layout).initialize(epoch, 0, &room);
        let mut this = Self {
            disk,
            memory,
            layout,
            random: Random::seed_from_u64(seed),
            generation: 1,
            life: None,
            unique: 0,
            memo: Memo::default(),
            plain: Plain::new(oracle),
            open: Vec::new(),
            nameless: BTreeSet::new(),
            deaths: 0,
            done_by_the_dead: 0,
        };
        this.request(false, |namespace| namespace.format(SECRET))?
            .map_err(|errno| errno.to_string())?;
        Ok(this)
    }

    /// One request, made again until it is done; what came of it.
    fn request<T>(
        &mut self,
        may_die: bool,
        act: impl Fn(&mut Namespace<'_, '_, SimMemory, Logical<&SimDisk>>) -> Result<T, Failure>,
    ) -> Result<Result<Option<T>, Errno>, String> {
        self.unique += 1;
        let unique = self.unique;
        let now = Time { seconds: 1000 + unique as i64, nanoseconds: 0 };
        let caller = Caller { now, ..Caller::default() };
        loop {
            let life = self.life.take();
            let view = life.as_ref().map_or_else(|| self.memory.another(), |life| life.1.clone());
            if may_die && self.random.random_range(0..4) == 0 {
                let most = [30, 600, 3000][self.random.random_range(0..3)];
                view.dies_after(Some(self.random.random_range(0..most)));
            }
            let mut publisher = match life {
                Some((publisher, _)) => publisher,
                None => match self.begin(unique, &view)? {
                    Begun::Life(publisher) => *publisher,
                    Begun::Dead => continue,
                    Begun::Done => return Ok(Ok(None)),
                },
            };
            let mut lower = Logical::open(vec![&self.disk]).map_err(|why| why.to_string())?;
            let mut seen = View::new(&mut publisher, &mut lower);
            let mut namespace = Namespace::new(&mut seen, caller, &mut self.memo);
            let acted = act(&mut namespace);
            if may_die && !view.is_dead() && self.random.random_range(0..8) == 0 {
                // The last stores are those that count.
                let most = [40, 700][self.random.random_range(0..2)];
                view.dies_after(Some(self.random.random_range(0..most)));
            }
            let committed = match &acted {
                Ok(_) => seen.commit(unique, b"done"),
                // A request that fails changes nothing.
                Err(_) => Ok(()),
            };
            // It may as well die when it has published it, and not told anybody.
            let untold = may_die && committed.is_ok() && self.random.random_range(0..8) == 0;
            if view.is_dead() || untold {
                self.deaths += 1;
                continue;
            }
            view.dies_after(None);
            self.life = Some((publisher, view));
            match (acted, committed) {
                (Err(Error::Cache(belay_cache::Error::Full)), _)
                | (_, Err(Error::Cache(belay_cache::Error::Full))) => self.checkpoint()?,
                (Err(Error::Errno(errno)), _) => return Ok(Err(errno)),
                (Err(why), _) | (_, Err(why)) => return Err(why.to_string()),
                (Ok(value), Ok(())) => return Ok(Ok(Some(value))),
            }
        }
    }

    /// A life of the module begins, whose first request is this one.
    fn begin(&mut self, unique: u64, view: &SimMemory) -> Result<Begun, String> {
        self.generation += 1;
        let shared = Shared::new(view.clone(), self.layout);
        let done = Answers::default().to(&shared, unique) == Some(b"done");
        let publisher = Publisher::attach(shared, self.generation);
        let publisher = match publisher {
            Err(_) if view.is_dead() => return Ok(Begun::Dead),
            publisher => publisher.map_err(|why: belay_cache::Error<Errno>| why.to_string())?,
        };
        if done {
            // What a dead life has published is not done again.
            self.done_by_the_dead += 1;
            return Ok(Begun::Done);
        }
        let kept = [0, 1 << 18, 1 << 24][self.random.random_range(0..3)];
        Ok(Begun::Life(Box::new(publisher.keeping(kept))))
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// What is wrong.
    pub fn checkpoint(&mut self) -> Result<(), String> {
        let mut lower = Logical::open(vec![&self.disk]).map_err(|why| why.to_string())?;
        let cleaner = Cleaner::new(Shared::new(self.memory.another(), self.layout));
        cleaner.checkpoint(&mut lower).map(|_| ()).map_err(|why| why.to_string())
    }

    /// Does something to both, which must say the same.
    ///
    /// # Errors
    /// What differs.
    pub fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Open(path) => return self.open(path),
            Act::Close(which) if !self.open.is_empty() => {
                self.open.swap_remove(which % self.open.len());
                return Ok(());
            }
            _ => {}
        }
        // Now and then all times are looked at, before and after it.
        let before = match self.random.random_range(0..8) {
            0 => Some(self.moments()?),
            _ => None,
        };
        let open = match act {
            Act::WriteOpen(which, ..) | Act::CreateIn(which, _) if !self.open.is_empty() => {
                self.open.get(which % self.open.len())
            }
            _ => None,
        };
        let there = self.plain.act(act, open.map(|open| &open.there));
        let open = open.map(|open| open.here);
        let doomed = self.request(false, |namespace| ours::doomed(namespace, act))?;
        let here = self.request(true, |namespace| ours::act(namespace, act, open))?;
        // A life that died has the answer.
        let is_right = match &here {
            Ok(None) => there.is_ok(),
            Ok(Some(here)) => there.as_ref() == Ok(here),
            Err(here) => there.as_ref() == Err(here),
        };
        if !is_right {
            return Err(format!("{act:.200?}: {here:.200?}, not {there:.200?}"));
        }
        if here.is_ok()
            && let Ok(Some(Some(doomed))) = doomed
        {
            self.nameless.insert(doomed);
        }
        if let Some(before) = before {
            let after = self.moments()?;
            let (here, there) = (changed(&before.0, &after.0), changed(&before.1, &after.1));
            if here != there {
                return Err(format!("{act:.200?}: times: {here:.300?}, not {there:.300?}"));
            }
        }
        // The kernel need not forget at once.
        match self.random.random_range(0..3) {
            0 => self.forget(),
            _ => Ok(()),
        }
    }

    /// The times of both.
    fn moments(&mut self) -> Result<(Moments, Moments), String> {
        let here = self.request(false, |namespace| ours::moments(namespace, ROOT))?;
        let here = here.map_err(|errno| errno.to_string())?.unwrap_or_default();
        let there = self.plain.moments().map_err(|errno| errno.to_string())?;
        self.plain.tick().map_err(|errno| errno.to_string())?;
        Ok((here, there))
    }

    fn open(&mut self, path: &str) -> Result<(), String> {
        let there = self.plain.open(path);
        let here = self.request(false, |namespace| ours::open(namespace, path))?;
        match (here, there) {
            (Ok(Some(here)), Ok(there)) => self.open.push(Open { here, there }),
            (Err(here), Err(there)) if here == there => {}
            (here, there) => return Err(format!("open {path}: {here:?}, not {there:?}")),
        }
        Ok(())
    }

    /// As the kernel: forgets what has no name and is not open.
    fn forget(&mut self) -> Result<(), String> {
        let open = &self.open;
        let is_open = |node: &ObjectId| open.iter().any(|open| open.here == *node);
        let (kept, gone): (BTreeSet<_>, BTreeSet<_>) =
            self.nameless.iter().copied().partition(is_open);
        self.nameless = kept;
        if gone.is_empty() {
            return Ok(());
        }
        let done = self.request(true, |namespace| {
            gone.iter().map(|node| namespace.forget(*node)).collect::<Result<Vec<_>, _>>()
        })?;
        match done {
            Ok(removed) if removed.iter().flatten().all(|removed| *removed) => Ok(()),
            done => Err(format!("forget {gone:?}: {done:?}")),
        }
    }

    /// It is unmounted and mounted again: what has no name is gone, whether it was open or not.
    ///
    /// # Errors
    /// What is wrong.
    pub fn remount(&mut self) -> Result<(), String> {
        self.open.clear();
        self.life = None;
        let orphans = self.request(false, |namespace| namespace.orphans(usize::MAX))?;
        let orphans: BTreeSet<_> = orphans.into_iter().flatten().flatten().collect();
        if orphans != self.nameless {
            return Err(format!("orphans: {orphans:?}, not {:?}", self.nameless));
        }
        self.forget()
    }

    /// Takes a checkpoint, and has all of the volume checked.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&mut self) -> Result<(), String> {
        self.checkpoint()?;
        let mut lower = Logical::open(vec![&self.disk]).map_err(|why| why.to_string())?;
        let found = lower.check(&mut |_| {}).map_err(|why| why.to_string())?;
        if !found.findings.is_empty() {
            return Err(format!("the check finds: {:?}", found.findings));
        }
        let names = check(&mut lower, found.objects, &BTreeSet::new(), &mut |_| {});
        match names.findings.is_empty() {
            true => Ok(()),
            false => Err(format!("the check of the names finds: {:?}", names.findings)),
        }
    }

    /// Compares all of the namespace with the directory.
    ///
    /// # Errors
    /// What differs.
    pub fn compare(&mut self) -> Result<(), String> {
        let here = self.request(false, |namespace| ours::tree(namespace, ROOT))?;
        let here = here.map_err(|errno| errno.to_string())?.unwrap_or_default();
        let there = self.plain.tree().map_err(|errno| errno.to_string())?;
        for path in here.keys().chain(there.keys()) {
            let (here, there) = (here.get(path), there.get(path));
            if here != there {
                return Err(format!("{path}: {here:.300?}, not {there:.300?}"));
            }
        }
        self.forget()?;
        self.count()?;
        for open in std::mem::take(&mut self.open) {
            let here = self.request(false, |namespace| {
                let node = namespace.node(open.here)?;
                ours::tell(namespace, &node)
            })?;
            let there = self.plain.tell_open(&open.there).map(Some);
            if here != there {
                return Err(format!("what is open: {here:.300?}, not {there:.300?}"));
            }
            self.open.push(open);
        }
        Ok(())
    }

    /// Whether there are the objects that there should be, and no others.
    fn count(&mut self) -> Result<(), String> {
        let found = self.request(false, |namespace| {
            let (all, usage) = (namespace.objects()?, namespace.usage()?);
            Ok((all, ours::reached(namespace, ROOT)?, usage.files))
        })?;
        let found = found.map_err(|errno| errno.to_string())?;
        let (all, mut reached, files) = found.ok_or("a request without changes was published")?;
        reached.extend(&self.nameless);
        for node in self.nameless.clone() {
            let extended =
                self.request(false, |namespace| Ok(namespace.node(node)?.metadata.extended))?;
            let extended = extended.map_err(|errno| errno.to_string())?;
            reached.extend(extended.filter(|extended| extended.0 != 0));
        }
        let all: BTreeSet<_> = all.into_iter().collect();
        match all == reached && files == all.len() as u64 {
            true => Ok(()),
            false => Err(format!("objects: {all:?}, {files} in all, not {reached:?}")),
        }
    }
}
