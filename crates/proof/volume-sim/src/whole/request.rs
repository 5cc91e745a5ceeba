//! Requests on the namespace, which are made again until they are answered, as belay does.

use super::kernel::{self, Failure, Kernel};
use super::stores::{Link, Process};
use super::{Lives, Stop, Whole, wrong};
use crate::memory::SimMemory;
use belay_cache::answers::Answers;
use belay_cache::{Publisher, Shared};
use belay_channel::RemoteStore;
use belay_posix::Error;
use belay_posix::fetch::{Fetched, Miss};
use rand::Rng;
use rustix::io::Errno;
use std::rc::Rc;

/// The namespace module.
#[derive(Debug)]
pub(super) struct Module {
    module: kernel::Module,
    /// Its way to the stores, unless it is in use.
    below: Option<RemoteStore<Link>>,
    view: SimMemory,
}

impl Module {
    /// Does a request. It may die behind so many stores of the message that changes something.
    pub(super) fn once<T>(
        &mut self,
        unique: u64,
        late: Option<u64>,
        act: impl FnOnce(&mut Kernel<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        act(&mut Kernel::new(&mut self.module, &mut self.below, &self.view, (unique, late)))
    }

    /// Its view of the memory.
    pub(super) fn view(&self) -> &SimMemory {
        &self.view
    }
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Answer<T> {
    /// It was done.
    Done(T),
    /// It was done by a life that has died then.
    ByTheDead,
    /// It was refused, as the caller is told.
    Refused(Errno),
    /// An I/O error.
    Failed(String),
}

impl Whole {
    /// A life of the module begins.
    pub(super) fn begin_module(&mut self, stores: &Rc<Process>) -> Result<Module, Stop> {
        self.generation += 1;
        let view = self.memory.another().sabotaged(self.sabotage, self.layout);
        self.module_with(stores, view)
    }

    fn module_with(&mut self, stores: &Rc<Process>, view: SimMemory) -> Result<Module, Stop> {
        // Nothing, little and all of what is read from below is kept.
        let kept = [0, 1 << 18, 1 << 24][self.random.random_range(0..3)];
        let shared = Shared::new(view.clone(), self.layout);
        let publisher = Publisher::attach::<Miss<belay_channel::Error>>(shared, self.generation);
        let publisher = publisher.map_err(wrong)?.keeping(kept);
        let module = kernel::Module::new(publisher, Fetched::default());
        let below = Some(RemoteStore::reader_over(Link::reader(stores, view.clone())));
        Ok(Module { module, below, view })
    }

    /// The same with a trace of its stores.
    pub(super) fn begin_traced(&mut self, stores: &Rc<Process>) -> Result<Module, Stop> {
        self.generation += 1;
        let view = self.memory.another().traced();
        self.module_with(stores, view)
    }

    /// The module has died in a request: the next life begins. Whether the request was done.
    fn next_life(&mut self, lives: &mut Lives, unique: u64) -> Result<bool, Stop> {
        self.outcome.module_deaths += 1;
        let module = self.begin_module(&lives.stores)?;
        let shared = Shared::new(module.view.clone(), self.layout);
        let is_done = Answers::default().to(&shared, unique).is_some();
        *lives.module.borrow_mut() = module;
        self.outcome.answered_by_the_dead += u64::from(is_done);
        Ok(is_done)
    }

    /// One request, made again until it is answered. Whoever it needs may die meanwhile.
    pub(super) fn request<T>(
        &mut self,
        lives: &mut Lives,
        may_die: bool,
        act: impl Fn(&mut Kernel<'_>) -> Result<T, Failure>,
    ) -> Result<Answer<T>, Stop> {
        self.unique += 1;
        let unique = self.unique;
        loop {
            let (mut late, mut untold) = (None, false);
            if may_die && self.chances.deaths {
                if self.random.random_range(0..8) == 0 {
                    let most = [30, 600, 3000][self.random.random_range(0..3)];
                    let left = self.random.random_range(0..most);
                    lives.module.borrow().view.dies_after(Some(left));
                }
                if self.random.random_range(0..8) == 0 {
                    let most = [40, 700][self.random.random_range(0..2)];
                    late = Some(self.random.random_range(0..most));
                }
                untold = self.random.random_range(0..12) == 0;
            }
            let done = lives.module.borrow_mut().once(unique, late, &act);
            let is_dead = lives.module.borrow().view.is_dead() || untold && done.is_ok();
            self.look_at_stores(&lives.stores)?;
            if is_dead {
                match self.next_life(lives, unique)? {
                    true => return Ok(Answer::ByTheDead),
                    false => continue,
                }
            }
            if self.chances.deaths {
                lives.module.borrow().view.dies_after(None);
            }
            match done {
                Ok(value) => return Ok(Answer::Done(value)),
                Err(Error::Errno(errno)) => return Ok(Answer::Refused(errno)),
                Err(Error::Cache(belay_cache::Error::Full)) => {
                    if let Err(why) = self.checkpoint(lives)? {
                        return Ok(Answer::Failed(why));
                    }
                }
                Err(why) => return Ok(Answer::Failed(why.to_string())),
            }
        }
    }

    /// A request that nobody may refuse, and that changes nothing.
    pub(super) fn must<T>(
        &mut self,
        lives: &mut Lives,
        act: impl Fn(&mut Kernel<'_>) -> Result<T, Failure>,
    ) -> Result<T, Stop> {
        match self.request(lives, false, act)? {
            Answer::Done(value) => Ok(value),
            Answer::ByTheDead => Err(wrong("a request that changes nothing was published")),
            Answer::Refused(errno) => Err(wrong(errno)),
            Answer::Failed(why) => Err(Stop::Wrong(why)),
        }
    }
}
