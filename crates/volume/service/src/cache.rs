//! The cache, as it is asked by other processes: it takes checkpoints, and makes durable what is
//! synced.
//!
//! All that it knows is in the memory. A next life of it goes on with the checkpoint that was under
//! way.

mod begin;

pub use begin::{begin, last_checkpoint};

use belay_cache::{Cleaner, Shared};
use belay_channel::{CacheAnswer, CacheAsk, Error as Below, RemoteStore, Transport};
use belay_memory::Memory;
use belay_object::{Lower, ObjectId};
use std::time::Duration;

/// How often a checkpoint is taken.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked whether one must be taken before that, and if there is nothing yet that
/// could be in it.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_IDLE: Duration = Duration::from_secs(1);
/// How often it is said that checkpoints fail.
const SAY: Duration = Duration::from_secs(60);
/// Why it gives up.
pub const DYING: &str =
    "the process with the stores dies again and again of what it is asked to do";

type Failure = belay_cache::Error<Below>;

/// What a process gives to its cache.
pub trait Surroundings {
    /// The time, since some moment before the cache was begun.
    fn now(&self) -> Duration;

    /// The stores did what they were asked to do last, and are asked for something else.
    fn renew_patience(&mut self);

    /// Whether the stores have died so often since then that they are not asked once more.
    fn is_patience_over(&self) -> bool;

    /// Something was under way when a process died, and is done: it is told.
    fn recovered(&mut self, recovery: Recovery);

    /// A checkpoint was taken, or why not: it is told if that is news.
    fn taken(&mut self, taken: &Result<(), String>);

    /// A number that is another one each time, and not too large to be added to that of a
    /// transaction.
    fn jump(&mut self) -> u64;

    /// Waits for so long; gives whether it was asked to end meanwhile.
    ///
    /// # Errors
    /// Why it cannot wait.
    fn ends_within(&mut self, time: Duration) -> anyhow::Result<bool>;
}

/// What was under way when a process died is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// What it was.
    pub asked: Asked,
    /// How long after the death was noticed.
    pub took: Duration,
    /// How often the process with the stores died meanwhile; 0 if it was the cache's own.
    pub deaths: u32,
    /// How many transactions were replayed.
    pub replayed: u64,
    /// How many were not, as the stores had them already.
    pub dropped: u64,
}

/// What can be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A checkpoint.
    Checkpoint,
    /// Something is made durable before its checkpoint.
    Sync,
}

/// The cache of a mount.
#[derive(Debug)]
pub struct Cache<M: Memory, T, S> {
    surroundings: S,
    shared: Shared<M>,
    cleaner: Cleaner<M>,
    below: RemoteStore<T>,
    mount: u64,
    /// When a checkpoint was taken last.
    last: Duration,
    /// When it is looked again whether one is due.
    look: Duration,
    /// Since when this life has a checkpoint to end that the last one has begun.
    begun: Option<Duration>,
    /// When it was said last that none can be taken, since one could.
    failing: Option<Duration>,
    /// The stores have died of what they were asked to do last, and have done nothing since.
    dying: bool,
    gave_up: bool,
}

impl<M: Memory + Clone, T: Transport, S: Surroundings> Cache<M, T, S> {
    /// A life of it begins, with a memory that is set up ([`begin()`]), for the mount with that
    /// number.
    pub fn new(shared: Shared<M>, below: RemoteStore<T>, mount: u64, surroundings: S) -> Self {
        shared.begin_mount(mount);
        let now = surroundings.now();
        let cleaner = Cleaner::new(shared.clone());
        // A checkpoint that the last life has begun is ended at once.
        let begun = shared.sealed().map(|_| now);
        Self {
            surroundings,
            shared,
            cleaner,
            below,
            mount,
            last: now,
            look: if begun.is_some() { now } else { now + LOOK },
            begun,
            failing: None,
            dying: false,
            gave_up: false,
        }
    }

    /// Answers somebody.
    pub fn answer(&mut self, ask: CacheAsk) -> CacheAnswer {
        match ask {
            CacheAsk::Ready(mount) if mount == self.mount => CacheAnswer::Done,
            CacheAsk::Ready(_) => {
                CacheAnswer::Refused("the volume is mounted by somebody else".to_owned())
            }
            CacheAsk::Checkpoint => told(self.checkpoint()),
            CacheAsk::Sync(objects) => told(self.sync(&objects)),
        }
    }

    /// When something is due that nobody asks for.
    pub fn due(&self) -> Duration {
        self.look
    }

    /// It is due.
    pub fn act(&mut self) {
        if self.is_due() {
            // Why it fails was said.
            let _ = self.checkpoint();
        }
        let look = if self.shared.is_empty() { LOOK_IDLE } else { LOOK };
        self.look = self.surroundings.now() + look;
    }

    /// Whether it does nothing more, as the stores die of what they are asked to do.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Takes the last checkpoints. Unless it was given up, nobody publishes any more.
    ///
    /// # Errors
    /// Why what is in the memory could not be brought to the stores.
    pub fn end(&mut self) -> Result<(), String> {
        if self.gave_up {
            return Err(DYING.to_owned());
        }
        self.checkpoint()?;
        // One more, in which nothing is new: if the root of the last checkpoint is lost, the one
        // before has all. It is not needed.
        let _ = self.with_below(Asked::Checkpoint, |cleaner, below| cleaner.checkpoint(below));
        Ok(())
    }

    /// Does something with the layers below, anew as often as they die, until it gives up.
    fn with_below<R>(
        &mut self,
        asked: Asked,
        act: impl Fn(&Cleaner<M>, &mut RemoteStore<T>) -> Result<R, Failure>,
    ) -> Result<R, String> {
        let begun = if asked == Asked::Checkpoint { self.begun.take() } else { None };
        let fresh = |since| {
            let took = Duration::ZERO;
            (since, Recovery { asked, took, deaths: 0, replayed: 0, dropped: 0 })
        };
        let mut recovery = begun.map(fresh);
        let mut deaths = 0;
        if !self.dying {
            self.surroundings.renew_patience();
        }
        loop {
            let ready = if self.below.is_open() { Ok(()) } else { self.below.renew() };
            let looked = ready.and_then(|()| match &mut recovery {
                Some((_, recovery)) => look(&self.shared, &mut self.below, recovery),
                None => Ok(()),
            });
            let done = looked
                .map_err(belay_cache::Error::Lower)
                .and_then(|()| act(&self.cleaner, &mut self.below));
            self.dying = matches!(done, Err(belay_cache::Error::Lower(Below::Lost)));
            match done {
                Ok(done) => {
                    if let Some((since, mut recovery)) = recovery {
                        recovery.took = self.since(since);
                        self.surroundings.recovered(recovery);
                    }
                    return Ok(done);
                }
                Err(_) if self.dying && self.surroundings.is_patience_over() => {
                    self.gave_up = true;
                    return Err(DYING.to_owned());
                }
                Err(_) if self.dying => {
                    deaths += 1;
                    let (_, recovery) =
                        recovery.get_or_insert_with(|| fresh(self.surroundings.now()));
                    recovery.deaths = deaths;
                }
                Err(why) => return Err(why.to_string()),
            }
        }
    }

    /// How long ago that was.
    fn since(&self, then: Duration) -> Duration {
        self.surroundings.now().saturating_sub(then)
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let taken = self
            .with_below(Asked::Checkpoint, |cleaner, below| cleaner.checkpoint(below).map(|_| ()));
        self.last = self.surroundings.now();
        match (&taken, self.failing) {
            (Ok(()), Some(_)) => tracing::warn!("checkpoints can be taken again"),
            (Err(why), before) if before.is_none_or(|said| self.since(said) > SAY) => {
                tracing::error!(
                    "no checkpoint can be taken: {why}. What was written since the last one is in memory alone; trying again"
                );
                self.failing = Some(self.surroundings.now());
            }
            _ => {}
        }
        if taken.is_ok() {
            self.failing = None;
        }
        self.surroundings.taken(&taken);
        taken
    }

    fn sync(&mut self, objects: &[u64]) -> Result<(), String> {
        let objects: Vec<_> = objects.iter().copied().map(ObjectId).collect();
        match self.with_below(Asked::Sync, |cleaner, below| cleaner.sync(below, &objects))? {
            true => Ok(()),
            // The intent log is full.
            false => self.checkpoint(),
        }
    }

    fn is_due(&self) -> bool {
        if self.shared.is_empty() {
            return false;
        }
        if self.begun.is_some() {
            return true;
        }
        self.since(self.last) >= INTERVAL || self.shared.has_much()
    }
}

/// Finds what becomes of a checkpoint that was under way when a process died.
fn look<M: Memory, T: Transport>(
    shared: &Shared<M>,
    below: &mut RemoteStore<T>,
    recovery: &mut Recovery,
) -> Result<(), Below> {
    if recovery.asked == Asked::Checkpoint
        && let Some(sealed) = shared.sealed()
    {
        let taken = below.epoch()?.saturating_sub(1);
        let transactions = sealed.saturating_sub(shared.durable());
        match taken > shared.durable_epoch() {
            true => recovery.dropped = transactions,
            false => recovery.replayed = transactions,
        }
    }
    Ok(())
}

fn told(done: Result<(), String>) -> CacheAnswer {
    match done {
        Ok(()) => CacheAnswer::Done,
        Err(why) => CacheAnswer::Refused(why),
    }
}
