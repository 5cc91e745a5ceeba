//! The daemon's epoll sets that have the device: there the bell is in its place, under the daemon's
//! own data.
//!
//! A bell is never writable, and the device always is: where the daemon waits for that as well, the
//! device itself is in the set too, and of what both say the daemon hears as of one.

use super::Found;
use super::watches::{READS, Watch, another, raw};
use crate::shim::{Shim, shim};
use crate::{descriptors, real};
use libc::{c_int, epoll_event};
use std::os::fd::RawFd;
use std::sync::Arc;

fn fail(errno: c_int) -> c_int {
    real::fail(errno) as c_int
}

impl Shim {
    /// epoll_ctl(2) of the device.
    pub(crate) fn set_control(
        &self,
        set: RawFd,
        op: c_int,
        device: RawFd,
        event: Option<(u32, u64)>,
    ) -> c_int {
        let mut sets = self.waiting.sets();
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
                    self.waiting.wait_unheard(); // no descriptor to be had
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

    /// What epoll_wait(2) of `set` has given, as the daemon is to see it; how much of it is left.
    /// `None` if that is nothing, and a signal has come.
    pub(crate) fn set_told(&self, set: RawFd, events: &mut [epoll_event]) -> Option<usize> {
        let (mut kept, mut interrupted) = (0, false);
        for at in 0..events.len() {
            let Some(mut event) = events.get(at).copied() else { break };
            let data = event.u64;
            let watch = self
                .waiting
                .sets()
                .0
                .iter()
                .find(|one| one.set == set && one.data == data)
                .cloned();
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
        let mut sets = self.waiting.sets();
        let same: Vec<_> = sets.0.iter().filter(|one| one.set == from).cloned().collect();
        for watch in same {
            sets.0.push(Watch { set: to, ..watch });
        }
        descriptors::add_set(to);
    }

    fn set_closing(&self, fd: RawFd) {
        let own = std::process::id();
        let mut sets = self.waiting.sets();
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

/// A set, or the device, is about to be closed, or its number given another meaning.
#[cold]
pub(crate) fn closing(fd: RawFd) {
    if let Some(shim) = shim() {
        shim.set_closing(fd);
    }
}
