//! The bell, and all else that is known of how the daemon waits for the device.

use super::stash::Stash;
use super::watches::Sets;
use crate::descriptors;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Where its descriptors are: high, so that daemons which count on low numbers are not disturbed,
/// and below what select(2) can be asked for.
pub(super) const DESCRIPTORS: RawFd = 210;

/// How the daemon waits for the device.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// It has a bell.
    used: AtomicBool,
    bell: OnceLock<Option<Bell>>,
    /// Reads of the device do not wait: O_NONBLOCK.
    nonblocking: AtomicBool,
    /// Threads that sleep in a read of the device all the same.
    readers: AtomicU32,
    /// Some thread waits in a way that the bell is not part of.
    unheard: AtomicBool,
    /// Held by the thread that takes a message for whoever waits.
    pub(super) fetching: Mutex<()>,
    stash: Mutex<Stash>,
    sets: Mutex<Sets>,
}

#[derive(Debug)]
struct Bell {
    /// The epoll set: the device, `event` and `timer`.
    set: OwnedFd,
    event: OwnedFd,
    /// For what is to be looked at later.
    timer: OwnedFd,
    rung: Mutex<Rung>,
}

/// What makes the bell readable.
#[derive(Clone, Copy, Debug)]
struct Rung {
    /// `event` is readable.
    now: bool,
    /// `timer` is set.
    later: bool,
}

impl Bell {
    fn new(device: &OwnedFd) -> rustix::io::Result<Self> {
        let high = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTORS).or(Ok(fd));
        let set = high(epoll::create(epoll::CreateFlags::CLOEXEC)?)?;
        let event = high(eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = high(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        for fd in [device, &event, &timer] {
            epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        // Rung: there may be something already.
        Ok(Self { set, event, timer, rung: Mutex::new(Rung { now: true, later: false }) })
    }
}

impl Waiting {
    /// Whether the daemon has ever waited for the device in poll, select or epoll.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Whether reads of the device do not wait, as far as was seen.
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Relaxed)
    }

    /// Whether some thread may sleep in a read of the device. Whoever asks has said before that
    /// there is work.
    pub(crate) fn has_readers(&self) -> bool {
        fence(SeqCst);
        self.readers.load(Relaxed) > 0
    }

    /// The calling thread looks for work, and may then sleep in a read of the device. It counts
    /// from before it looks: it sees what there is, or whoever makes work sees it. A thread that is
    /// cancelled in its read is kicked in vain from then on.
    pub(crate) fn begin_reading(&self) {
        self.readers.fetch_add(1, Relaxed);
        fence(SeqCst);
    }

    /// It does not sleep there.
    pub(crate) fn end_reading(&self) {
        self.readers.fetch_sub(1, Relaxed);
    }

    /// O_NONBLOCK was set or cleared.
    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Relaxed);
    }

    /// What was taken for the daemon and is not read yet.
    pub(super) fn stash(&self) -> MutexGuard<'_, Stash> {
        self.stash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon's epoll sets that have the device.
    pub(super) fn sets(&self) -> MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor to wait for in the place of `device`; `None` if there is none to be had.
    /// `serves`: whether the daemon has come to the end of its start.
    pub(crate) fn bell(&self, device: &OwnedFd, serves: bool) -> Option<RawFd> {
        let bell = self.bell.get_or_init(|| {
            let bell = Bell::new(device).ok()?;
            let own = [&bell.set, &bell.event, &bell.timer].map(AsRawFd::as_raw_fd);
            own.into_iter().for_each(descriptors::reserve);
            if serves {
                // It has been read without a bell: some thread may be asleep there, uncounted.
                self.readers.fetch_add(1, Relaxed);
            }
            self.used.store(true, Relaxed);
            Some(bell)
        });
        bell.as_ref().map(|bell| bell.set.as_raw_fd())
    }

    fn known_bell(&self) -> Option<&Bell> {
        self.bell.get().and_then(Option::as_ref)
    }

    /// There is, or may be, something for whoever waits with the bell.
    pub(crate) fn ring(&self) {
        let Some(bell) = self.known_bell() else { return };
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !rung.now {
            rung.now = rustix::io::write(&bell.event, &1u64.to_ne_bytes()).is_ok();
        }
    }

    /// Somebody is about to look for work: what rang before is heard.
    pub(crate) fn silence(&self) {
        let Some(bell) = self.known_bell() else { return };
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = [0; 8];
        if rung.later && rustix::io::read(&bell.timer, &mut word).is_ok() {
            rung.later = false; // it has been
        }
        if rung.now {
            let _ = rustix::io::read(&bell.event, &mut word);
            rung.now = false;
        }
    }

    /// Rings in so many nanoseconds.
    pub(crate) fn ring_in(&self, ns: i64) {
        let Some(bell) = self.known_bell() else { return };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Itimerspec {
            it_interval: never,
            it_value: Timespec { tv_sec: 0, tv_nsec: ns.clamp(1, 999_999_999) },
        };
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        rung.later = true;
        let _ = timerfd_settime(bell.timer.as_fd(), TimerfdTimerFlags::empty(), &after);
    }

    /// The calling thread waits for the device as the bell cannot: its wakers are told so, once and
    /// for all.
    #[cold]
    pub(crate) fn wait_unheard(&self) {
        if !self.unheard.swap(true, Relaxed) {
            self.begin_reading();
        }
    }
}
