//! Other mounts that the daemon has made besides the held one. Belay holds none of them: each dies
//! with the daemon that has made it.
//!
//! A dead one can keep the successor from starting, which finds its place without an answer
//! (ENOTCONN). So it is taken away before; but only one of which the kernel has said that the
//! daemon served it (or, where it does not say such, the daemon itself), and that is dead. The
//! kernel says so of a process that lives, and as soon as the held mount is known.

use super::Supervisor;
use crate::degraded::Kind;
use crate::ledger::MOST_SECONDS;
use crate::mounts::{self, Mount, MountFact};
use crate::orphans::{self, Answer};
use belay_sys::ChildSetup;
use std::fs::File;

/// Gives a successor that has a mount namespace of its own this one, by that number: what it mounts
/// besides is to be seen by everybody. Whether that was done.
pub(super) fn give_outer(setup: &mut ChildSetup, number: i32) -> bool {
    let outer = File::open("/proc/self/ns/mnt");
    outer.map(|outer| setup.descriptors.push((outer.into(), number))).is_ok()
}

fn words(place: &str) -> String {
    format!(
        "this daemon has made a second mount at {place}, which belay does not hold: it dies with the daemon. To have both held, \
         start a daemon for each of them"
    )
}

impl Supervisor {
    /// The daemon says that it has another mount, and where, if it knows.
    pub(super) fn hear_of_second(&mut self, told: &str) {
        let mut is_found = false;
        if self.looks.second.may() {
            // The device of the held mount may be on its way here still.
            self.find_mount();
            is_found = self.learn_seconds(told);
        }
        if !is_found {
            let unknown = "a place that belay cannot see";
            self.lost(Kind::SecondMount, &words(if told.is_empty() { unknown } else { told }));
            self.book.mounts.told(told.to_owned());
        }
        self.keep_book();
    }

    /// The held mount has been found: from now on the others can be told from it. Two threads may
    /// mount at once.
    pub(super) fn find_unseen(&mut self) {
        for told in self.book.mounts.take_unseen() {
            if !self.learn_seconds(&told) {
                self.book.mounts.told(told);
            }
        }
    }

    /// Notes the mounts that the daemon serves besides the held one, and tells of those that are
    /// new. Whether there is one.
    fn learn_seconds(&mut self, told: &str) -> bool {
        let found = self.seconds(told);
        let is_found = !found.is_empty();
        for fact in found {
            if self.book.mounts.add_second(&fact) {
                self.lost(Kind::SecondMount, &words(&fact.mountpoint.show()));
            }
        }
        is_found
    }

    /// The mounts that the daemon serves besides the held one, as far as the kernel tells. By
    /// kernels that do not, what has come since belay's start where the daemon says that it has
    /// mounted.
    fn seconds(&self, told: &str) -> Vec<MountFact> {
        let served = self.process().map(|process| mounts::served_by(process.pid));
        let served = served.unwrap_or_default();
        let held = mounts::connection(self.device());
        let is_second = |mount: &Mount| match &held {
            Some(held) => mount.device != *held && served.contains(&mount.device),
            None => {
                mount.mountpoint == told.as_bytes()
                    && !self.book.mounts.was_there(&mount.device)
                    && self
                        .book
                        .mounts
                        .held
                        .as_ref()
                        .is_some_and(|held| held.device != mount.device)
            }
        };
        let table = mounts::table().unwrap_or_default();
        let seconds =
            table.iter().filter(|mount| mount.is_fuse() && mount.root == b"/" && is_second(mount));
        seconds.take(MOST_SECONDS).map(MountFact::of).collect()
    }

    /// Takes away what the dead daemon has mounted besides. Before the next one starts, or when
    /// none is to come. What does not say whether it is dead is asked again before the start after
    /// that.
    pub(super) fn take_off_seconds(&mut self) {
        self.looks.second.reset();
        // Of a dead process the kernel does not say any more what it served.
        let (seconds, unseen) = (self.book.mounts.take_seconds(), self.book.mounts.take_unseen());
        if seconds.is_empty() && unseen.is_empty() {
            return;
        }
        for fact in seconds {
            let place = fact.mountpoint.show();
            if !mounts::is_there(&fact) {
                continue;
            }
            let answer = orphans::ask(&fact);
            if answer == Answer::Dead && mounts::detach(&fact, None, &self.helpers.scouts) {
                tracing::warn!("{place}: the second mount of the dead daemon is taken away");
                continue;
            }
            let why = match answer {
                Answer::Dead => "it cannot be unmounted now",
                Answer::Served => "somebody serves it",
                Answer::Silent => "it does not say whether it is dead",
            };
            tracing::warn!(
                "{place}: the second mount of the dead daemon is left there: {why}; unmount it with `umount -l` or `fusermount3 -uz`"
            );
            if answer != Answer::Served {
                self.book.mounts.add_second(&fact);
            }
        }
        self.keep_book();
    }
}
