//! The mount serves for the first time, in its place: that is said, and those who wait for it are
//! told.
//!
//! A daemon may serve before its file system has a place (see `finding`). Who waits for the mount
//! goes on with what is at the mountpoint, and finds there what the mount is to cover: so both are
//! waited for. A place that belay cannot see, as it is in another mount namespace, comes never:
//! that is told after a while, in words that name no place.

use super::Supervisor;
use super::parts::clients::Wait;
use crate::clock;
use crate::clock::SECOND;
use crate::protocol::Answer;
use crate::text;

/// How long a mount that serves may take to get its place.
const PLACE: u64 = 30 * SECOND;

impl Supervisor {
    /// The answer to who asks whether the mount serves; none as long as it does not.
    pub(super) fn serving(&self) -> Option<Answer> {
        let told = self.life.serves() && (self.book.mounts.held.is_some() || self.book.has_served);
        told.then(|| Answer::Serving { mountpoint: self.known_place() })
    }

    /// What the daemon is called, for people.
    pub(super) fn daemon_name(&self) -> String {
        let name = self.config.command.first().map(|name| name.show()).unwrap_or_default();
        name.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Where it is, for people; nothing if that is not known. A guess is no place.
    fn known_place(&self) -> String {
        self.book.mounts.held.as_ref().map(|mount| mount.mountpoint.show()).unwrap_or_default()
    }

    /// A daemon has come to serve, or the mount to its place.
    pub(super) fn tell_serving(&mut self) {
        if !self.life.serves() {
            return;
        }
        if !self.book.has_served {
            let now = clock::now();
            if self.book.mounts.held.is_none() && !self.is_placed_elsewhere(now) {
                return;
            }
            self.book.has_served = true;
            self.keep_book();
            let place = text::escaped(self.known_place().as_ref());
            let place = if place.is_empty() { "a place that belay does not see" } else { &place };
            tracing::info!("mounted at {place}: {} is held", self.daemon_name());
        }
        let serving = self.serving();
        self.answer_waiting(|wait| if wait == Wait::Serving { serving.clone() } else { None });
    }

    /// Whether its place has been looked for in vain for so long that there will be none.
    fn is_placed_elsewhere(&self, now: u64) -> bool {
        self.looks_for_mount_since().is_some_and(|since| now.saturating_sub(since) > PLACE)
    }
}
