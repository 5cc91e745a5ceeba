//! Other mounts that the daemon has made besides the held one. Belay holds none of them: each dies with the daemon that has made
//! it.
//!
//! A dead one can keep the successor from starting, which finds its place without an answer (ENOTCONN). So it is taken away before;
//! but only one of which the kernel has said that the daemon served it (or, where it does not say such, the daemon itself), and that is
//! dead.

use super::Supervisor;
use crate::degraded::Kind;
use crate::mounts::{self, Mount, MountFact};
use crate::orphans;
use belay_sys::ChildSetup;
use std::fs::File;

/// Mounts that are known at a time.
const MOST: usize = 16;
/// Gives a successor that has a mount namespace of its own this one, by that number: what it mounts besides is to be seen by
/// everybody. Whether that was done.
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
        let (mut places, mut found) = (Vec::new(), false);
        if self.looks.second.may() {
            // The device of the held mount may be on its way here still.
            self.find_mount();
            for fact in self.seconds(told) {
                found = true;
                let is_known = self.book.seconds.contains(&fact);
                if !is_known && self.book.seconds.len() < MOST {
                    places.push(fact.mountpoint.show());
                    self.book.seconds.push(fact);
                }
            }
        }
        if !found {
            let unknown = "a place that belay cannot see";
            places.push(if told.is_empty() { unknown } else { told }.to_owned());
        }
        for place in places {
            self.lost(Kind::SecondMount, &words(&place));
        }
        self.keep_book();
    }

    /// The mounts that the daemon serves besides the held one, as far as the kernel tells. By kernels that do not, what has come
    /// since belay's start where the daemon says that it has mounted.
    fn seconds(&self, told: &str) -> Vec<MountFact> {
        let served = self.process().map(|process| mounts::served_by(process.pid));
        let served = served.unwrap_or_default();
        let held = mounts::connection(self.device());
        let is_second = |mount: &Mount| match &held {
            Some(held) => mount.device != *held && served.contains(&mount.device),
            None => {
                mount.mountpoint == told.as_bytes()
                    && !self.book.others.contains(&mount.device)
                    && self.book.mount.as_ref().is_some_and(|held| held.device != mount.device)
            }
        };
        let table = mounts::table().unwrap_or_default().into_iter();
        let seconds =
            table.filter(|mount| mount.is_fuse() && mount.root == b"/" && is_second(mount));
        seconds.take(MOST).map(|mount| MountFact::of(&mount)).collect()
    }

    /// Takes away what the dead daemon has mounted besides. Before the next one starts, or when none is to come.
    pub(super) fn take_off_seconds(&mut self) {
        self.looks.second.reset();
        if self.book.seconds.is_empty() {
            return;
        }
        for fact in std::mem::take(&mut self.book.seconds) {
            let place = fact.mountpoint.show();
            if !mounts::is_there(&fact) {
                continue;
            }
            if orphans::is_dead(&fact) && mounts::detach(&fact, None, &self.helpers.scouts) {
                tracing::warn!("{place}: the second mount of the dead daemon is taken away");
            } else {
                tracing::warn!(
                    "{place}: the second mount of the dead daemon is left there; unmount it with `umount -l` or `fusermount3 -uz`"
                );
            }
        }
        self.keep_book();
    }
}
