//! The daemon's epoll sets that have the device: there the bell is in its place, under the daemon's own data.
//!
//! A bell is never writable, and the device always is: where the daemon waits for that as well, the device itself is in the
//! set too, and of what both say the daemon hears as of one.

use super::Found;
use crate::start::{Shim, shim};
use crate::{descriptors, real};
use libc::{c_int, epoll_event};
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard, PoisonError};

const READS: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLPRI | libc::EPOLLRDHUP) as u32;
const WRITES: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const HOW: u32 = (libc::EPOLLET | libc::EPOLLONESHOT | libc::EPOLLWAKEUP) as u32;

/// A duplicate of the bell; closed with the last set that has it.
#[derive(Debug)]
struct Duplicate(RawFd);

impl Drop for Duplicate {
    fn drop(&mut self) {
        // SAFETY: made for a watch, and known to nobody else.
        unsafe { belay_sys::raw::syscall(libc::SYS_close, self.0) };
    }
}

/// One device descriptor in one set.
#[derive(Clone, Debug)]
struct Watch {
    set: RawFd,
    device: RawFd,
    /// The bell in its place: a duplicate of its own, as a set has each descriptor once. Duplicates of the set have the same.
    bell: Option<Arc<Duplicate>>,
    /// The device is in the set.
    itself: bool,
    events: u32,
    data: u64,
    /// The process that put it there.
    pid: u32,
}

#[derive(Debug, Default)]
pub(super) struct Sets(Vec<Watch>);

/// What is wanted of the bell, and of the device itself.
fn parts(events: u32) -> (Option<u32>, Option<u32>) {
    let how = events & HOW;
    let bell = (events & READS != 0).then_some(libc::EPOLLIN as u32 | how);
    let itself = (events & WRITES != 0 || bell.is_none()).then_some(events & !READS);
    (bell, itself)
}

/// epoll_ctl(2), without the C library.
fn raw(set: RawFd, op: c_int, fd: RawFd, events: u32, data: u64) -> c_int {
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
    fn number(&self) -> Option<RawFd> {
        self.bell.as_ref().map(|bell| bell.0)
    }

    /// Whether it is the same member of the same set, known by another number.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.bell, &other.bell) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => self.set == other.set && self.device == other.device,
        }
    }

    /// Makes it one for `events`.
    fn become_one_for(&mut self, events: u32, data: u64) -> c_int {
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
    fn end(&self) -> c_int {
        let done = if self.itself { change(self.set, self.device, true, None, 0) } else { 0 };
        self.number()
            .map_or(done, |fd| change(self.set, fd, self.events & READS != 0, None, 0).min(done))
    }

    /// What has been told of it once is not told again, nor is what its other half has to say.
    fn disarm(&self) {
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
    fn arm_again(&self) {
        if self.events & libc::EPOLLONESHOT as u32 != 0
            && let (Some(fd), (Some(events), _)) = (self.number(), parts(self.events))
        {
            raw(self.set, libc::EPOLL_CTL_MOD, fd, events, self.data);
        }
    }
}

fn fail(errno: c_int) -> c_int {
    real::fail(errno) as c_int
}

impl Shim {
    fn sets(&self) -> MutexGuard<'_, Sets> {
        self.waiting.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// epoll_ctl(2) of the device.
    pub(crate) fn set_control(
        &self,
        set: RawFd,
        op: c_int,
        device: RawFd,
        event: Option<(u32, u64)>,
    ) -> c_int {
        let mut sets = self.sets();
        let at = sets.0.iter().position(|one| one.set == set && one.device == device);
        match (op, at, event) {
            (libc::EPOLL_CTL_ADD, Some(_), _) => fail(libc::EEXIST),
            (libc::EPOLL_CTL_ADD, None, Some((events, data))) => {
                // A bell is an epoll set, for which there is no waking of one alone.
                let events = events & !(libc::EPOLLEXCLUSIVE as u32);
                let bell = self.bell().and_then(another).map(Arc::new);
                let pid = std::process::id();
                let mut watch = Watch { set, device, bell, itself: false, events: 0, data, pid };
                let done = if watch.bell.is_some() {
                    watch.become_one_for(events, data)
                } else {
                    self.wait_unheard(); // no descriptor to be had
                    watch.itself = true;
                    watch.events = events;
                    raw(set, op, device, events, data)
                };
                if done < 0 {
                    let errno = real::errno();
                    if let Some(fd) = watch.number() {
                        raw(set, libc::EPOLL_CTL_DEL, fd, 0, 0);
                    }
                    return fail(errno);
                }
                descriptors::add_set(set);
                sets.0.push(watch);
                done
            }
            (libc::EPOLL_CTL_MOD, Some(at), Some((events, data))) => {
                let Some(watch) = sets.0.get_mut(at) else { return fail(libc::ENOENT) };
                if watch.bell.is_none() {
                    (watch.events, watch.data) = (events, data);
                    return raw(set, op, device, events, data);
                }
                let done = watch.become_one_for(events, data);
                let now = watch.clone();
                for same in sets.0.iter_mut().filter(|one| one.is_same(&now)) {
                    (same.itself, same.events, same.data) = (now.itself, now.events, now.data);
                }
                done
            }
            (libc::EPOLL_CTL_DEL, Some(at), _) => {
                let watch = sets.0.swap_remove(at);
                sets.0.retain(|one| !one.is_same(&watch));
                watch.end()
            }
            // Not a set that is known, or arguments that are none: as the kernel says.
            (_, _, event) => {
                let (events, data) = event.unwrap_or_default();
                raw(set, op, device, events, data)
            }
        }
    }

    /// What epoll_wait(2) of `set` has given, as the daemon is to see it; how much of it is left. `None` if that is nothing, and a
    /// signal has come.
    pub(crate) fn set_told(&self, set: RawFd, events: &mut [epoll_event]) -> Option<usize> {
        let (mut kept, mut interrupted) = (0, false);
        for at in 0..events.len() {
            let Some(mut event) = events.get(at).copied() else { break };
            let data = event.u64;
            let watch =
                self.sets().0.iter().find(|one| one.set == set && one.data == data).cloned();
            if let Some(watch) = watch.filter(|watch| watch.bell.is_some()) {
                let found =
                    if event.events & READS != 0 { self.has_message() } else { Found::Message };
                interrupted |= found == Found::Interrupted;
                if found != Found::Message {
                    event.events &= !READS;
                    if event.events == 0 {
                        watch.arm_again();
                        continue;
                    }
                }
                let before = events.get_mut(..kept).unwrap_or_default();
                if let Some(same) = before.iter_mut().find(|one| { one.u64 } == data) {
                    same.events |= event.events;
                    continue;
                }
                watch.disarm();
            }
            if let Some(place) = events.get_mut(kept) {
                *place = event;
                kept += 1;
            }
        }
        (kept > 0 || !interrupted).then_some(kept)
    }

    /// `to` has become a duplicate of the set `from`.
    pub(crate) fn set_duplicated(&self, from: RawFd, to: RawFd) {
        let mut sets = self.sets();
        let same: Vec<_> = sets.0.iter().filter(|one| one.set == from).cloned().collect();
        for watch in same {
            sets.0.push(Watch { set: to, ..watch });
        }
        descriptors::add_set(to);
    }

    fn set_closing(&self, fd: RawFd) {
        let own = std::process::id();
        let mut sets = self.sets();
        let (gone, left): (Vec<_>, Vec<_>) = std::mem::take(&mut sets.0)
            .into_iter()
            .partition(|one| one.set == fd || one.device == fd);
        sets.0 = left;
        // A set that this process has from its parent may be that one's still.
        for watch in gone.iter().filter(|watch| watch.device == fd && watch.pid == own) {
            watch.end();
        }
    }
}

/// A descriptor of the bell for one more set.
fn another(bell: RawFd) -> Option<Duplicate> {
    // SAFETY: duplicates a live descriptor.
    let fd = unsafe { libc::fcntl(bell, libc::F_DUPFD_CLOEXEC, super::DESCRIPTORS) };
    (fd >= 0).then_some(Duplicate(fd))
}

/// A set, or the device, is about to be closed, or its number given another meaning.
#[cold]
pub(crate) fn closing(fd: RawFd) {
    if let Some(shim) = shim() {
        shim.set_closing(fd);
    }
}
