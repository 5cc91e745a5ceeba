//! Where the held file system is mounted.
//!
//! A daemon may serve before there is such a place: the kernel asks it as soon as the file system
//! is made, which may be put in its place later, also by another call (fsmount(2), move_mount(2)).

use super::Supervisor;
use super::parts::deadlines::Due;
use super::parts::looks::place::FIRST;
use crate::mounts;

impl Supervisor {
    /// Finds the mount in the mount table, if it is not known yet.
    pub(super) fn find_mount(&mut self) {
        // Also if the mount is known: it is in the table before its device is in the mailbox.
        self.adopt_device();
        if self.book.mounts.held.is_some() {
            return;
        }
        let told = self.control().mountpoint();
        if let Some(fact) = mounts::find(self.device(), &told, self.book.mounts.before()) {
            tracing::debug!("mounted at {}", fact.mountpoint.show());
            self.book.mounts.held = Some(fact);
            self.find_unseen();
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
        let unknown = self.book.mounts.held.is_none();
        match unknown {
            true => self.deadlines.set(Due::Place, now.saturating_add(FIRST)),
            false => self.deadlines.cancel(Due::Place),
        }
        self.looks.place.begin(now, unknown);
    }

    /// Since when that is looked for in vain.
    pub(super) fn looks_for_mount_since(&self) -> Option<u64> {
        self.looks.place.since()
    }

    /// Looks, as it is time to.
    pub(super) fn look_for_mount(&mut self, now: u64) {
        let pause = self.looks.place.again();
        self.find_mount();
        // Also if it has not been found: that it has no place is told at some time.
        self.tell_serving();
        if self.book.mounts.held.is_some() {
            self.looks.place.end();
            self.pursue_stop();
        } else {
            self.deadlines.set(Due::Place, now.saturating_add(pause));
        }
    }
}
