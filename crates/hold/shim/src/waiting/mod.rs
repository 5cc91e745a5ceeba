//! Daemons that wait for the device in poll, select or epoll, and read it when that says so.
//!
//! What belay itself has for such a daemon (the recorded INIT, requests of its own, those that
//! waited until others were settled) makes nothing readable in the kernel. So there is a *bell*: an
//! epoll set of belay's own that is readable when the device is, or when it is rung. In whatever a
//! daemon waits with, the bell takes the device's place.
//!
//! | module | answers |
//! | --- | --- |
//! | [`bell`] | what the bell is, when it is rung, and when it is silent |
//! | [`fetch`] | whether a read would give something: a daemon that was told so is not to wait in its read |
//! | [`stash`] | what was taken for a daemon before it reads |
//! | [`sets`] | what becomes of the daemon's calls about epoll sets that have the device |
//! | [`watches`] | which sets have it, and what is in its place there |
//!
//! The rule is that of a level: whatever may have made work rings, each look for work silences
//! first, and one that finds nothing leaves the bell silent. So nothing is missed, and nobody is
//! told twice of what is not there.
//!
//! A daemon that never waits so has no bell, and pays one load a read. Those that wait by other
//! means than the C library's are woken by messages of the kernel: see [`belay_host`].

pub(crate) mod bell;
mod fetch;
mod sets;
mod stash;
mod watches;

use crate::shim::Shim;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, RawFd};

impl Shim {
    /// The descriptor to wait for in the device's place; `None` if there is none to be had.
    pub(crate) fn bell(&self) -> Option<RawFd> {
        self.waiting.bell(&self.device, self.host.is_ready())
    }
}

/// Sleeps for so many nanoseconds, as if it was in a read of the device: a signal ends it with
/// EINTR if its handler is one without SA_RESTART, and only then. That is how read(2) is, and no
/// other call that ends after a time.
pub(crate) fn doze(ns: i64) -> rustix::io::Result<()> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let after = Itimerspec {
        it_interval: never,
        it_value: Timespec { tv_sec: 0, tv_nsec: ns.clamp(1, 999_999_999) },
    };
    timerfd_settime(timer.as_fd(), TimerfdTimerFlags::empty(), &after)?;
    rustix::io::read(&timer, &mut [0; 8]).map(drop)
}

pub(crate) use fetch::Found;
pub(crate) use sets::closing;
