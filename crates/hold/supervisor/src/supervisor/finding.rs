//! Where the held file system is mounted.
//!
//! A daemon may serve before there is such a place: the kernel asks it as soon as the file system is made, which may be put in
//! its place later, also by another call (fsmount(2), move_mount(2)).

use super::deadlines::Due;
use super::{SECOND, Supervisor};
use crate::mounts;

/// The first pause between two looks at the mount table, and the longest.
const FIRST: u64 = SECOND / 100;
const LONGEST: u64 = 10 * SECOND;

/// Looks for the place of a file system that is served, and in no place yet.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The pause after the next look.
    pause: u64,
    /// Since when.
    since: Option<u64>,
}

impl Supervisor {
    /// Finds the mount in the mount table, if it is not known yet.
    pub(super) fn find_mount(&mut self) {
        // Also if the mount is known: it is in the table before its device is in the mailbox.
        self.adopt_device();
        if self.book.mount.is_some() {
            return;
        }
        let told = self.control().mountpoint();
        if let Some(fact) = mounts::find(self.device(), &told, &self.book.others) {
            tracing::debug!("mounted at {}", fact.mountpoint.show());
            self.book.mount = Some(fact);
            // Who waits for the place is told at the next look, which is due.
            if self.deadlines.at(Due::Place).is_some() {
                self.deadlines.set(Due::Place, 0);
            }
            self.keep_book();
            self.note_mount();
        }
    }

    /// The daemon serves: from now on nothing tells where, if that is not known yet.
    pub(super) fn begin_to_look_for_mount(&mut self, now: u64) {
        let unknown = self.book.mount.is_none();
        match unknown {
            true => self.deadlines.set(Due::Place, now.saturating_add(FIRST)),
            false => self.deadlines.cancel(Due::Place),
        }
        self.finding.pause = FIRST;
        self.finding.since = self.finding.since.or(Some(now)).filter(|_| unknown);
    }

    /// Since when that is looked for in vain.
    pub(super) fn looks_for_mount_since(&self) -> Option<u64> {
        self.finding.since
    }

    /// Looks, as it is time to.
    pub(super) fn look_for_mount(&mut self, now: u64) {
        self.finding.pause = self.finding.pause.saturating_mul(2).min(LONGEST);
        self.find_mount();
        // Also if it has not been found: that it has no place is told at some time.
        self.tell_serving();
        if self.book.mount.is_some() {
            self.finding = Looks::default();
            self.pursue_stop();
        } else {
            self.deadlines.set(Due::Place, now.saturating_add(self.finding.pause));
        }
    }
}
