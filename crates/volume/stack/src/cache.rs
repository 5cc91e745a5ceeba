//! The process of the cache: it takes checkpoints, and makes durable what is synced.
//!
//! All that it knows is in the memory. A next life of it goes on with the checkpoint that was under way.

use crate::ending::{Left, asked_to_end};
use crate::memory::{self, Memory};
use crate::patience::Patience;
use crate::place::{Place, Role};
use crate::pulse::Pulse;
use crate::report::{Asked, CacheReport, Recovery, now_us};
use anyhow::{Context, Result, bail, ensure};
use belay_cache::intent::replay;
use belay_cache::{Capacity, Cleaner};
use belay_channel::client::Waits;
use belay_channel::{CacheAnswer, CacheAsk, Error as Below, RemoteStore, Server, Service};
use belay_object::{Lower, ObjectId};
use belay_sys::Mapping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a checkpoint is taken.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked whether one must be taken before that, and if there is nothing yet that could be in it.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_IDLE: Duration = Duration::from_secs(1);
/// How often it is said that checkpoints fail.
const SAY: Duration = Duration::from_secs(60);
/// How long a mount waits for a disk that cannot read what it takes: until it is known that this lasts.
const FAILING: Duration = Duration::from_secs(90);
/// How often that is tried.
const AGAIN: Duration = Duration::from_secs(1);
/// Why it gives up.
const DYING: &str = "the process with the stores dies again and again of what it is asked to do";

/// By how much the numbers of a new memory are ahead of those of the last one, at the most.
const JUMP: u64 = 1 << 32;

type Failure = belay_cache::Error<Below>;

/// Runs it, for the mount with that number.
///
/// # Errors
/// If the memory cannot be had, or is of other stores than these; at the end, if what is in the memory could not be brought to the
/// stores.
pub fn run(place: &Place, mount: u64, capacity: Capacity) -> Result<i32> {
    let stop = asked_to_end(place, Role::Cache)?;
    let _role = place.take(Role::Cache)?;
    let pulse = Pulse::of(place, Role::Cache)?;
    serve(place, mount, capacity, &pulse, &stop).inspect_err(|why| {
        if !passes(why) {
            CacheReport::of(place).ends(place, &format!("{why:#}"));
            pulse.give_up();
        }
    })
}

/// Whether the next life of the process may do better: the machine lacks something for a moment.
fn passes(why: &anyhow::Error) -> bool {
    why.chain().any(|one| {
        let system = one.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
        let code = system.or(one.downcast_ref().copied());
        code.is_some_and(|code| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&code))
    })
}

fn serve(
    place: &Place,
    mount: u64,
    capacity: Capacity,
    pulse: &Pulse,
    stop: &OwnedFd,
) -> Result<i32> {
    let mut shared = memory::open_or_make(place, capacity)?;
    let patience = Patience::new(place, pulse.clone())?;
    let mut below = RemoteStore::writer(&place.socket(Role::Store), Box::new(patience.clone()));
    if shared.is_valid() && !shared.is_mounted(mount) {
        let last = checkpoint_of(&mut below, &patience)?;
        shared = memory::go_on_with(shared, place, capacity, last)?;
    }
    if !shared.is_valid()
        && let Err(why) = begin(&shared, &mut below, &patience, stop)
    {
        // As little is in this one, and nobody may ever try again.
        memory::remove(place)?;
        return Err(why);
    }
    shared.begin_mount(mount);
    let now = Instant::now();
    let cleaner = Cleaner::new(shared.clone());
    // A checkpoint that the last life has begun is ended at once.
    let begun = shared.sealed().map(|_| now);
    let mut cache = Cache {
        left: Left::new(place, &[Role::Namespace])?,
        is_alone: false,
        pulse: pulse.clone(),
        place: place.clone(),
        report: CacheReport::of(place),
        shared,
        cleaner,
        below,
        mount,
        last: now,
        look: if begun.is_some() { now } else { now + LOOK },
        begun,
        failing: None,
        patience,
        dying: false,
        gave_up: false,
    };
    let socket = place.socket(Role::Cache);
    let mut server =
        Server::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    server.run(&mut cache, stop)?;
    // Unless it was given up, nobody publishes any more: the namespace module has ended, and nobody starts another.
    let taken = if cache.gave_up { Err(DYING.to_owned()) } else { cache.checkpoint() };
    let Err(why) = taken else {
        // One more, in which nothing is new: if the root of the last checkpoint is lost, the one before has all. It is not needed.
        let _ = cache.with_below(Asked::Checkpoint, |cleaner, below| cleaner.checkpoint(below));
        memory::remove(place)?;
        return Ok(0);
    };
    bail!(
        "the last checkpoint could not be taken: {why}. What was written since the one before is in {}, and is there \
         when the volume is mounted again, unless this machine is restarted before that",
        place.memory().display()
    )
}

/// The last checkpoint of the stores, and up to which transaction it reaches.
fn checkpoint_of(below: &mut RemoteStore, patience: &Patience) -> Result<(u64, u64)> {
    until_it_lives(patience, || {
        below.renew()?;
        Ok((below.epoch()?.saturating_sub(1), below.upto()?))
    })
}

/// Asks the stores until they do not die of it, or have died too often.
fn until_it_lives<T>(
    patience: &Patience,
    mut ask: impl FnMut() -> std::result::Result<T, Below>,
) -> Result<T> {
    patience.renew();
    loop {
        match ask() {
            Err(Below::Lost) if !patience.is_over() => {}
            Err(Below::Lost) => bail!("{DYING}"),
            done => return Ok(done?),
        }
    }
}

/// Sets the memory up: with what the stores have, and the intent log besides.
fn begin(
    shared: &Memory,
    below: &mut RemoteStore,
    patience: &Patience,
    stop: &OwnedFd,
) -> Result<()> {
    patience.renew();
    // Since when the disk has failed in the same way.
    let mut failing: Option<(Instant, String)> = None;
    loop {
        let tried = below.renew().map_err(belay_cache::Error::Lower).and_then(|()| {
            // No other memory counts from here, so what is in this one will never be taken for what is in another.
            let first = replay(below)?.saturating_add(rand_jump());
            below.checkpoint(first).map_err(belay_cache::Error::Lower)?;
            let epoch = below.epoch().map_err(belay_cache::Error::Lower)?;
            Ok((first, epoch, below.room().map_err(belay_cache::Error::Lower)?))
        });
        match tried {
            Ok((first, epoch, room)) => {
                shared.initialize(epoch.saturating_sub(1), first, &room);
                shared.set_valid();
                return Ok(());
            }
            Err(belay_cache::Error::Lower(Below::Lost)) if !patience.is_over() => {}
            Err(belay_cache::Error::Lower(Below::Lost)) => bail!("{DYING}"),
            Err(belay_cache::Error::Lower(Below::Failing(why)))
                if failing
                    .as_ref()
                    .is_none_or(|(since, before)| *before != why || since.elapsed() < FAILING) =>
            {
                if failing.as_ref().is_none_or(|(_, before)| *before != why) {
                    tracing::warn!("{why}; trying again for a while");
                    failing = Some((Instant::now(), why));
                }
                ensure!(!ends_within(stop, patience, AGAIN)?, "it was asked to end");
            }
            Err(why) => bail!(
                "what was synced before the last end cannot be replayed: {why}; `belay volume check` says what is wrong, and what can \
                 be done"
            ),
        }
    }
}

/// Waits for so long; gives whether it was asked to end meanwhile.
fn ends_within(stop: &OwnedFd, patience: &Patience, time: Duration) -> Result<bool> {
    let mut asked = [PollFd::new(stop, PollFlags::IN)];
    let time = Timespec::try_from(time).context("cannot wait for so long")?;
    patience.wait(true);
    let found = retry_on_intr(|| poll(&mut asked, Some(&time)));
    patience.wait(false);
    Ok(found? > 0)
}

/// A number that is another one each time.
fn rand_jump() -> u64 {
    RandomState::new().hash_one(std::process::id()) % JUMP
}

struct Cache {
    pulse: Pulse,
    left: Left,
    is_alone: bool,
    place: Place,
    report: CacheReport,
    shared: Memory,
    cleaner: Cleaner<Arc<Mapping>>,
    below: RemoteStore,
    mount: u64,
    /// When a checkpoint was taken last.
    last: Instant,
    /// When it is looked again whether one is due.
    look: Instant,
    /// Since when this life has a checkpoint to end that the last one has begun.
    begun: Option<Instant>,
    /// When it was said last that none can be taken, since one could.
    failing: Option<Instant>,
    patience: Patience,
    /// The stores have died of what they were asked to do last, and have done nothing since.
    dying: bool,
    gave_up: bool,
}

impl Cache {
    /// Does something with the layers below, anew as often as they die, until it gives up.
    fn with_below<T>(
        &mut self,
        asked: Asked,
        act: impl Fn(&Cleaner<Arc<Mapping>>, &mut RemoteStore) -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, String> {
        let begun = if asked == Asked::Checkpoint { self.begun.take() } else { None };
        let fresh = || Recovery { asked, pid: std::process::id(), ..Recovery::default() };
        let mut recovery = begun.map(|since| (since, fresh()));
        let mut deaths = 0;
        if !self.dying {
            self.patience.renew();
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
                        recovery.at_us = now_us();
                        let took = since.elapsed().as_micros();
                        recovery.took_us = u64::try_from(took).unwrap_or(u64::MAX);
                        self.report.add(&self.place, recovery);
                    }
                    return Ok(done);
                }
                Err(_) if self.dying && self.patience.is_over() => {
                    self.gave_up = true;
                    return Err(DYING.to_owned());
                }
                Err(_) if self.dying => {
                    deaths += 1;
                    let (_, recovery) = recovery.get_or_insert_with(|| (Instant::now(), fresh()));
                    recovery.deaths = deaths;
                }
                Err(why) => return Err(why.to_string()),
            }
        }
    }

    fn checkpoint(&mut self) -> std::result::Result<(), String> {
        let taken = self
            .with_below(Asked::Checkpoint, |cleaner, below| cleaner.checkpoint(below).map(|_| ()));
        self.last = Instant::now();
        match (&taken, self.failing) {
            (Ok(()), Some(_)) => tracing::warn!("checkpoints can be taken again"),
            (Err(why), before) if before.is_none_or(|said| said.elapsed() > SAY) => {
                tracing::error!(
                    "no checkpoint can be taken: {why}. What was written since the last one is in memory alone; trying again"
                );
                self.failing = Some(Instant::now());
            }
            _ => {}
        }
        if taken.is_ok() {
            self.failing = None;
        }
        self.report.taken(&self.place, &taken);
        taken
    }

    fn sync(&mut self, objects: &[u64]) -> std::result::Result<(), String> {
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
        self.last.elapsed() >= INTERVAL || self.shared.has_much()
    }
}

/// Finds what becomes of a checkpoint that was under way when a process died.
fn look(
    shared: &Memory,
    below: &mut RemoteStore,
    recovery: &mut Recovery,
) -> std::result::Result<(), Below> {
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

fn told(done: std::result::Result<(), String>) -> CacheAnswer {
    match done {
        Ok(()) => CacheAnswer::Done,
        Err(why) => CacheAnswer::Refused(why),
    }
}

impl Service for Cache {
    type Ask = CacheAsk;
    type Answer = CacheAnswer;

    fn turn(&mut self) {
        self.pulse.beat();
        self.is_alone = self.left.is_alone();
    }

    fn answer(&mut self, _client: u64, ask: CacheAsk) -> Option<CacheAnswer> {
        Some(match ask {
            CacheAsk::Ready(mount) if mount == self.mount => CacheAnswer::Done,
            CacheAsk::Ready(_) => {
                CacheAnswer::Refused("the volume is mounted by somebody else".to_owned())
            }
            CacheAsk::Checkpoint => told(self.checkpoint()),
            CacheAsk::Sync(objects) => told(self.sync(&objects)),
        })
    }

    fn is_over(&self) -> bool {
        self.gave_up || self.is_alone
    }

    fn due(&self) -> Option<Instant> {
        Some(self.look)
    }

    fn act(&mut self) {
        if self.is_due() {
            // Why it fails was said.
            let _ = self.checkpoint();
        }
        self.look = Instant::now() + if self.shared.is_empty() { LOOK_IDLE } else { LOOK };
    }
}
