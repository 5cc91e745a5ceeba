//! Which of the daemon's epoll sets have the device, and what is in its place there.

use libc::{c_int, epoll_event};
use std::os::fd::RawFd;
use std::sync::Arc;

pub(super) const READS: u32 =
    (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLPRI | libc::EPOLLRDHUP) as u32;
const WRITES: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const HOW: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP) as u32;

/// A duplicate of the bell; closed with the last set that has it.
#[derive(Debug)]
pub(super) struct Duplicate(RawFd);

impl Drop for Duplicate {
    fn drop(&mut self) {
        // SAFETY: made for a watch, and known to nobody else.
        unsafe { belay_sys::raw::syscall(libc::SYS_close, self.0) };
    }
}

/// One device descriptor in one set.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) set: RawFd,
    pub(super) device: RawFd,
    /// The bell in its place: a duplicate of its own, as a set has each descriptor once. Duplicates
    /// of the set have the same.
    pub(super) bell: Option<Arc<Duplicate>>,
    /// The device is in the set.
    pub(super) itself: bool,
    pub(super) events: u32,
    pub(super) data: u64,
    /// The process that put it there.
    pub(super) pid: u32,
}

#[derive(Debug, Default)]
pub(super) struct Sets(pub(super) Vec<Watch>);

/// What is wanted of the bell, and of the device itself.
fn parts(events: u32) -> (Option<u32>, Option<u32>) {
    let how = events & HOW;
    let bell = (events & READS != 0).then_some(libc::EPOLLIN as u32 | how);
    let itself = (events & WRITES != 0 || bell.is_none()).then_some(events & !READS);
    (bell, itself)
}

/// epoll_ctl(2), without the C library.
pub(super) fn raw(set: RawFd, op: c_int, fd: RawFd, events: u32, data: u64) -> c_int {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: a live structure; descriptors that are none only give an error.
    unsafe { belay_sys::raw::syscall(libc::SYS_epoll_ctl, set, op, fd, &raw mut event) as c_int }
}

/// Brings one member of a set from what it was to what is wanted.
fn change(set: RawFd, fd: RawFd, is: bool, wanted: Option<u32>, data: u64) -> c_int {
    match (is, wanted) {
        (false, Some(events)) => raw(set, libc::EPOLL_CTL_ADD, fd, events, data),
        (true, Some(events)) => raw(set, libc::EPOLL_CTL_MOD, fd, events, data),
        (true, None) => raw(set, libc::EPOLL_CTL_DEL, fd, 0, 0),
        (false, None) => 0,
    }
}

impl Watch {
    pub(super) fn number(&self) -> Option<RawFd> {
        self.bell.as_ref().map(|bell| bell.0)
    }

    /// Whether it is the same member of the same set, known by another number.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.bell, &other.bell) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => self.set == other.set && self.device == other.device,
        }
    }

    /// Makes it one for `events`.
    pub(super) fn become_one_for(&mut self, events: u32, data: u64) -> c_int {
        let (bell, itself) = parts(events);
        if let Some(fd) = self.number() {
            let done = change(self.set, fd, self.events & READS != 0, bell, data);
            if done < 0 {
                return done;
            }
        }
        let done = change(self.set, self.device, self.itself, itself, data);
        if done >= 0 {
            self.itself = itself.is_some();
            (self.events, self.data) = (events, data);
        }
        done
    }

    /// Takes it out of its set.
    pub(super) fn end(&self) -> c_int {
        let done = if self.itself { change(self.set, self.device, true, None, 0) } else { 0 };
        self.number()
            .map_or(done, |fd| change(self.set, fd, self.events & READS != 0, None, 0).min(done))
    }

    /// What has been told of it once is not told again, nor is what its other half has to say.
    pub(super) fn disarm(&self) {
        if self.events & libc::EPOLLONESHOT as u32 == 0 || !self.itself || self.bell.is_none() {
            return;
        }
        let how = self.events & HOW;
        raw(self.set, libc::EPOLL_CTL_MOD, self.device, how, self.data);
        if let Some(fd) = self.number().filter(|_| self.events & READS != 0) {
            raw(self.set, libc::EPOLL_CTL_MOD, fd, how, self.data);
        }
    }

    /// There was nothing to be told after all.
    pub(super) fn arm_again(&self) {
        if self.events & libc::EPOLLONESHOT as u32 != 0
            && let (Some(fd), (Some(events), _)) = (self.number(), parts(self.events))
        {
            raw(self.set, libc::EPOLL_CTL_MOD, fd, events, self.data);
        }
    }
}

/// A descriptor of the bell for one more set.
pub(super) fn another(bell: RawFd) -> Option<Duplicate> {
    // SAFETY: duplicates a live descriptor.
    let fd = unsafe { libc::fcntl(bell, libc::F_DUPFD_CLOEXEC, super::bell::DESCRIPTORS) };
    (fd >= 0).then_some(Duplicate(fd))
}
