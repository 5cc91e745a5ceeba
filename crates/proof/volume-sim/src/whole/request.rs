//! Requests on the namespace, which are made again until they are answered, as belay does.

use super::stores::{Link, Process};
use super::{Lives, Stop, Whole, wrong};
use crate::memory::SimMemory;
use belay_cache::answers::Answers;
use belay_cache::{Publisher, Shared};
use belay_channel::RemoteStore;
use belay_posix::{Caller, Error, Namespace, Time, View};
use rand::Rng;
use rustix::io::Errno;
use std::rc::Rc;

/// Why a request fails.
pub(super) type Failure = Error<belay_channel::Error>;

/// What requests are made on.
pub(super) type Names<'a, 'b> = Namespace<'a, 'b, SimMemory, RemoteStore<Link>>;

/// The namespace module.
#[derive(Debug)]
pub(super) struct Module {
    publisher: Publisher<SimMemory>,
    below: RemoteStore<Link>,
    view: SimMemory,
    hint: u64,
}

impl Module {
    /// Does a request, unless it fails. It may die behind so many stores of those that publish it.
    pub(super) fn once<T>(
        &mut self,
        unique: u64,
        late: Option<u64>,
        act: impl FnOnce(&mut Names<'_, '_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let now = Time { seconds: 1000 + unique as i64, nanoseconds: 0 };
        let caller = Caller { now, ..Caller::default() };
        let mut seen = View::new(&mut self.publisher, &mut self.below);
        let mut namespace = Namespace::new(&mut seen, caller, &mut self.hint);
        let done = act(&mut namespace)?;
        if late.is_some() && !self.view.is_dead() {
            self.view.dies_after(late);
        }
        // A request that fails changes nothing.
        seen.commit(unique, b"done")?;
        Ok(done)
    }

    /// How many transactions there are.
    pub(super) fn end(&mut self, durable: u64) -> Result<u64, Stop> {
        self.publisher.refresh::<belay_channel::Error>().map_err(wrong)?;
        Ok(durable + self.publisher.pending())
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
        let publisher =
            Publisher::attach::<belay_channel::Error>(shared, self.generation).map_err(wrong)?;
        let below = RemoteStore::reader_over(Link::reader(stores, view.clone()));
        Ok(Module { publisher: publisher.keeping(kept), below, view, hint: 0 })
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
        let is_done = Answers::default().to(&shared, unique) == Some(b"done");
        *lives.module.borrow_mut() = module;
        self.outcome.answered_by_the_dead += u64::from(is_done);
        Ok(is_done)
    }

    /// One request, made again until it is answered. Whoever it needs may die meanwhile.
    pub(super) fn request<T>(
        &mut self,
        lives: &mut Lives,
        may_die: bool,
        act: impl Fn(&mut Names<'_, '_>) -> Result<T, Failure>,
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
        act: impl Fn(&mut Names<'_, '_>) -> Result<T, Failure>,
    ) -> Result<T, Stop> {
        match self.request(lives, false, act)? {
            Answer::Done(value) => Ok(value),
            Answer::ByTheDead => Err(wrong("a request that changes nothing was published")),
            Answer::Refused(errno) => Err(wrong(errno)),
            Answer::Failed(why) => Err(Stop::Wrong(why)),
        }
    }

    /// An empty namespace.
    pub(super) fn format(&mut self) -> Result<(), Stop> {
        let mut lives = self.begin()?;
        match self.request(&mut lives, false, |namespace| namespace.format())? {
            Answer::Done(()) => self.settle(&mut lives),
            answer => Err(wrong(format!("{answer:?}"))),
        }
    }
}
