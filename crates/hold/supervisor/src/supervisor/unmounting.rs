//! `belay stop`: the mount is taken off if nobody uses it; lazily, if that is wanted. Only
//! `--force` and signals end what is in use (`ending`).
//!
//! The kernel lets a mount go whose users sit on a copy of it: a bind mount, or the copy in another
//! mount namespace. Whether nobody uses it any more is known by the end of its connection alone;
//! before that, the daemon is not ended.

use super::Supervisor;
use super::lifecycle::Event;
use super::parts::clients::Wait;
use super::parts::deadlines::Due;
use crate::clock;
use crate::clock::SECOND;
use crate::error::passes;
use crate::mounts::{self, MountFact, Removed};
use crate::protocol::{Answer, StopHow};
use crate::scout::Scouts;
use crate::{threads, users};
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::SIGTERM;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long something must be in use to be taken as such: for the instant between fork and exec a
/// child has what its parent had.
const IN_USE: Duration = Duration::from_millis(500);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long copies of the mount that nobody uses may stay: each belay takes away those in the
/// namespaces that it has made.
const COPIES: Duration = Duration::from_secs(5);

/// How soon a thread that could not be had is tried for again.
const PAUSE: u64 = SECOND / 20;

impl Supervisor {
    /// No thread can be had to unmount by, and the event loop waits for none: it is tried again.
    /// `false`: it has been in vain for too long.
    pub(super) fn lacks_thread(&mut self, why: &str) -> bool {
        let now = clock::now();
        if !self.unmounts.is_lacking() {
            tracing::warn!("{why}: waiting until it can be");
        }
        let since = self.unmounts.lacks(now);
        self.deadlines.set(Due::Unmount, now.saturating_add(PAUSE));
        now.saturating_sub(since) < mounts::LACK.as_nanos() as u64
    }

    /// What was due has been tried. It comes again only if it was in vain, and is still `wanted`.
    fn rest(&mut self, now: u64, wanted: bool) {
        if wanted && self.unmounts.is_lacking() {
            self.deadlines.set_first(Due::Unmount, now.saturating_add(PAUSE));
        } else {
            self.lacks_nothing();
        }
    }

    fn lacks_nothing(&mut self) {
        self.unmounts.lacks_nothing();
        self.deadlines.cancel(Due::Unmount);
    }

    /// Whether belay was asked to end the mount, and the daemon does not know it yet.
    fn has_to_tell(&self) -> bool {
        self.book.stop.is_some_and(|stop| !stop.told && !stop.at_once)
    }

    /// Takes the next step of each wish to unmount: begins, or tells what came of it.
    pub(super) fn pursue_unmount(&mut self) {
        if self.life.ended().is_some() {
            return;
        }
        if self.unmounts.is_under_way() {
            let Some((how, removed)) = self.unmounts.take_done() else { return };
            self.unmounted(how, removed);
        }
        let now = clock::now();
        if self.deadlines.at(Due::Unmount).is_some() {
            return;
        }
        if self.unmounts.is_lacking() && self.has_to_tell() {
            self.pursue_stop();
        }
        if self.life.ended().is_none() && self.may_stop() {
            for how in [StopHow::Unused, StopHow::Lazy] {
                if !self.unmounts.is_under_way()
                    && self.clients.has_waiting(|wait| wait == Wait::Unmount(how))
                {
                    self.begin_unmount(how);
                }
            }
        }
        let wanted =
            self.has_to_tell() || self.clients.has_waiting(|wait| matches!(wait, Wait::Unmount(_)));
        self.rest(now, wanted);
    }

    /// Whether nothing is to be done before the end: in a recovery, the applications that wait get
    /// their answers first, and what was acknowledged is done again.
    pub(super) fn may_stop(&self) -> bool {
        let nobody_waits = || !mounts::has_unread(self.device()) && self.requests().count() == 0;
        self.life.serves()
            || self.book.generation == 0
            || self.waiting().is_some()
            || !self.has_epochs() && nobody_waits()
    }

    fn begin_unmount(&mut self, how: StopHow) {
        self.helpers.nudge.end();
        self.find_mount();
        let Some(mount) = self.book.mounts.held.clone() else {
            // Nobody can use what is not there yet.
            self.answer_unmount(how, None);
            self.request_stop();
            return;
        };
        match self.unmount_beside(mount, how) {
            Ok(removed) => {
                self.lacks_nothing();
                self.unmounts.begin(how, removed);
            }
            Err(error) => {
                let why = format!("cannot start a thread that unmounts: {error}");
                if !passes(&error) || !self.lacks_thread(&why) {
                    self.lacks_nothing();
                    let why = format!("{why}; try again");
                    self.answer_unmount(how, Some(&Answer::Refused { why }));
                }
            }
        }
    }

    /// Begins to unmount in a thread of its own; one try, which holds nobody up.
    fn unmount_beside(&self, mount: MountFact, how: StopHow) -> io::Result<Receiver<Removed>> {
        let event = self.events.counter_for_another()?;
        let device = belay_sys::dup_cloexec(self.device())?;
        let (tell, removed) = channel();
        let scouts = Arc::clone(&self.helpers.scouts);
        let work = move || {
            let removed = match how {
                StopHow::Lazy => mounts::remove(&mount, Some(device.as_fd()), &scouts, true),
                _ => remove_unused(&mount, device.as_fd(), &scouts),
            };
            let _ = tell.send(removed);
            let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
        };
        match threads::start_within(Duration::ZERO, "unmount", work) {
            Ok(_) => Ok(removed),
            Err((error, _)) => Err(error),
        }
    }

    fn unmounted(&mut self, how: StopHow, removed: Removed) {
        match removed {
            // Somebody uses it still.
            Removed::Now | Removed::Before
                if how == StopHow::Lazy || !mounts::is_disconnected(self.device()) =>
            {
                let proven = self.book.mounts.held.as_ref().filter(|mount| mount.proven);
                let device = proven.map(|mount| mount.device.clone());
                self.answer_unmount(how, Some(&Answer::Detached { device }));
            }
            Removed::Now | Removed::Before => {
                // The daemon hears of it by itself, and gets the time that it gets when belay is
                // asked to stop.
                self.live(Event::Unmounted { now: clock::now() });
                self.keep_book();
                self.answer_unmount(how, None);
                // One that still starts may wait for long before it finds that out.
                let starts = !self.life.serves() && self.book.generation > 0 && !self.has_epochs();
                if starts {
                    let _ = self.signal_daemon(SIGTERM);
                }
                // If none is there, it is over.
                self.pursue_stop();
            }
            Removed::InUse => self.answer_unmount(how, Some(&Answer::InUse)),
            Removed::Not(why) => self.answer_unmount(how, Some(&Answer::Refused { why })),
        }
    }

    /// Gives those who asked for this an answer; `None`: when it is over.
    fn answer_unmount(&mut self, how: StopHow, answer: Option<&Answer>) {
        match answer {
            Some(answer) => {
                self.answer_waiting(|wait| (wait == Wait::Unmount(how)).then(|| answer.clone()))
            }
            None => self.clients.await_end(how),
        }
    }
}

/// Takes the mount off if nobody uses it, and waits for the end of its connection.
fn remove_unused(mount: &MountFact, device: BorrowedFd<'_>, scouts: &Scouts) -> Removed {
    if mount.proven && stays(|| users::is_used_elsewhere(&mount.device)) {
        return Removed::InUse;
    }
    let removed = mounts::remove(mount, Some(device), scouts, false);
    if matches!(removed, Removed::Now | Removed::Before) {
        await_end(mount, device);
    }
    removed
}

/// Waits for the end of the connection of a mount that is off; not for users, who may stay for
/// ever.
fn await_end(mount: &MountFact, device: BorrowedFd<'_>) {
    let lives = || !mounts::is_disconnected(device);
    let is_used = || {
        let is_copy = |copy: &mounts::Mount| copy.device == mount.device;
        mounts::table().is_ok_and(|table| table.iter().any(is_copy))
            || !users::of(&mount.device).found.is_empty()
    };
    let begin = Instant::now();
    while lives() && begin.elapsed() < COPIES {
        if mount.proven && stays(|| lives() && is_used()) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether it is so for as long as it takes to be taken as such.
fn stays(is_so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while is_so() {
        if begin.elapsed() > IN_USE {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    false
}
