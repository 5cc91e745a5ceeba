//! The process of the cache: it takes checkpoints, and makes durable what is synced.
//!
//! What it does and when is decided in [`belay_service::cache`]. The process gives it the memory,
//! patience, and a clock.

use crate::ending::{Left, asked_to_end};
use crate::memory;
use crate::patience::Patience;
use crate::place::{Place, Role};
use crate::pulse::Pulse;
use crate::report::{self, CacheReport, now_us};
use anyhow::{Context, Result, bail};
use belay_cache::Capacity;
use belay_channel::client::Waits;
use belay_channel::{CacheAnswer, CacheAsk, Connection, RemoteStore, Server, Service};
use belay_channel::{StoreAnswer, StoreAsk};
use belay_service::Cache;
use belay_service::cache::{Asked, Recovery, Surroundings, begin, last_checkpoint};
use belay_sys::Mapping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// By how much the numbers of a new memory are ahead of those of the last one, at the most.
const JUMP: u64 = 1 << 32;

/// Runs it, for the mount with that number.
///
/// # Errors
/// If the memory cannot be had, or is of other stores than these; at the end, if what is in the
/// memory could not be brought to the stores.
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
    let begun = Instant::now();
    let report = CacheReport::of(place);
    let mut given = Given { begun, place: place.clone(), report, patience, stop };
    if shared.is_valid() && !shared.is_mounted(mount) {
        let last = last_checkpoint(&mut below, &mut given)?;
        shared = memory::go_on_with(shared, place, capacity, last)?;
    }
    if !shared.is_valid()
        && let Err(why) = begin(&shared, &mut below, &mut given)
    {
        // As little is in this one, and nobody may ever try again.
        memory::remove(place)?;
        return Err(why);
    }
    let mut process = Process {
        pulse: pulse.clone(),
        left: Left::new(place, &[Role::Namespace])?,
        is_alone: false,
        begun,
        cache: Cache::new(shared, below, mount, given),
    };
    let socket = place.socket(Role::Cache);
    let mut server =
        Server::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
    server.run(&mut process, stop)?;
    let Err(why) = process.cache.end() else {
        memory::remove(place)?;
        return Ok(0);
    };
    bail!(
        "the last checkpoint could not be taken: {why}. What was written since the one before is in {}, and is there \
         when the volume is mounted again, unless this machine is restarted before that",
        place.memory().display()
    )
}

struct Process<'s> {
    pulse: Pulse,
    left: Left,
    is_alone: bool,
    begun: Instant,
    cache: Cache<Arc<Mapping>, Connection<StoreAsk, StoreAnswer>, Given<'s>>,
}

impl Service for Process<'_> {
    type Ask = CacheAsk;
    type Answer = CacheAnswer;

    fn turn(&mut self) {
        self.pulse.beat();
        self.is_alone = self.left.is_alone();
    }

    fn answer(&mut self, _client: u64, ask: CacheAsk) -> Option<CacheAnswer> {
        Some(self.cache.answer(ask))
    }

    fn is_over(&self) -> bool {
        self.cache.gave_up() || self.is_alone
    }

    fn due(&self) -> Option<Instant> {
        Some(self.begun + self.cache.due())
    }

    fn act(&mut self) {
        self.cache.act();
    }
}

/// What the process gives to the cache.
struct Given<'s> {
    begun: Instant,
    place: Place,
    report: CacheReport,
    patience: Patience,
    /// Can be read when it is asked to end.
    stop: &'s OwnedFd,
}

impl Surroundings for Given<'_> {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn renew_patience(&mut self) {
        self.patience.renew();
    }

    fn is_patience_over(&self) -> bool {
        self.patience.is_over()
    }

    fn recovered(&mut self, one: Recovery) {
        let asked = match one.asked {
            Asked::Checkpoint => report::Asked::Checkpoint,
            Asked::Sync => report::Asked::Sync,
        };
        let recovery = report::Recovery {
            pid: std::process::id(),
            at_us: now_us(),
            took_us: u64::try_from(one.took.as_micros()).unwrap_or(u64::MAX),
            asked,
            deaths: one.deaths,
            replayed: one.replayed,
            dropped: one.dropped,
        };
        self.report.add(&self.place, recovery);
    }

    fn taken(&mut self, taken: &std::result::Result<(), String>) {
        self.report.taken(&self.place, taken);
    }

    fn jump(&mut self) -> u64 {
        RandomState::new().hash_one(std::process::id()) % JUMP
    }

    fn ends_within(&mut self, time: Duration) -> Result<bool> {
        let mut asked = [PollFd::new(self.stop, PollFlags::IN)];
        let time = Timespec::try_from(time).context("cannot wait for so long")?;
        self.patience.wait(true);
        let found = retry_on_intr(|| poll(&mut asked, Some(&time)));
        self.patience.wait(false);
        Ok(found? > 0)
    }
}
