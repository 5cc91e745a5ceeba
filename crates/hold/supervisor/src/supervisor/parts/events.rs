//! What the event loop waits for.

use super::tokens::{COMMITTED, EVENT, SIGNALS};
use crate::error::{Error, Result};
use crate::signals::Signals;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::mem::MaybeUninit;

/// So many events are taken at once.
const AT_ONCE: usize = 16;

/// The set of descriptors that the event loop waits for, and two of them.
#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
    signals: Signals,
    /// The committer counts here what it has done, the waker what was refused, the mirror what it
    /// cannot do, and who looks elsewhere that it is back. Not the daemon's counter: who shares one
    /// can fill it, or make it wait.
    counter: OwnedFd,
}

impl Events {
    /// Signals are caught from now on.
    ///
    /// # Errors
    /// Those of the system calls that make it.
    pub fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::system("create", "an epoll set", e, ""))?;
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::system("create", "an event counter", e, ""))?;
        let events = Self { epoll, signals: Signals::catch()?, counter };
        events.listen(&events.signals, SIGNALS)?;
        events.listen(&events.counter, COMMITTED)?;
        Ok(events)
    }

    /// Waits for `fd` as well, by the number `token`.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn listen(&self, fd: &impl AsFd, token: u64) -> Result<()> {
        self.listen_to(fd, token).map_err(|e| Error::system("watch", "a descriptor", e, ""))
    }

    /// The same.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn listen_to(&self, fd: &impl AsFd, token: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    }

    /// Listens to the daemon's event counter. It is never read: the daemon shares its description,
    /// and with it the flag by which a read waits or does not. Each write to it is an edge.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn listen_to_daemon(&self, event: &impl AsFd) -> Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, event, epoll::EventData::new_u64(EVENT), flags)
            .map_err(|e| Error::system("watch", "a descriptor", e, ""))
    }

    /// Waits for `fd` in another way from now on: for nothing, or for what can be read.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn heed(&self, fd: &impl AsFd, token: u64, heeded: bool) -> rustix::io::Result<()> {
        let flags = if heeded { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
    }

    /// The set, to which others add what they wait for.
    pub fn set(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Waits so long; gives the numbers of what has come. An interrupted or failed wait is as good
    /// as one without events.
    pub fn wait(&self, limit: &Timespec) -> Vec<u64> {
        let mut room = [const { MaybeUninit::uninit() }; AT_ONCE];
        match epoll::wait(&self.epoll, &mut room, Some(limit)) {
            Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// The signals that have come.
    pub fn signals(&mut self) -> Vec<i32> {
        self.signals.pending()
    }

    /// The supervisor's own counter.
    pub fn counter(&self) -> &OwnedFd {
        &self.counter
    }

    /// The same for a thread, which counts there when it has something to tell.
    ///
    /// # Errors
    /// Those of dup(2).
    pub fn counter_for_another(&self) -> io::Result<OwnedFd> {
        belay_sys::dup_cloexec(self.counter.as_fd())
    }

    /// What was counted there is heard now.
    pub fn reset_counter(&self) {
        let _ = rustix::io::read(&self.counter, &mut [0_u8; 8]);
    }
}
