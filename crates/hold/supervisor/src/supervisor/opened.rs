//! A daemon of which nobody has said what it works on, and that was seen to have a disk image open:
//! no argument has named it, so its policy is not for one.
//!
//! Invariant: what the daemon has open for somebody on the mount is not taken for its own: it is
//! looked when nobody has anything open there, before and after.

use super::Supervisor;
use super::parts::deadlines::Due;
use crate::clock;
use crate::clock::SECOND;
use crate::config::Policy;
use crate::degraded::Kind;
use crate::scout::Sent;
use crate::text::command_line;
use crate::threads;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How often it is looked until a look tells.
const LOOKS: u64 = SECOND;
impl Supervisor {
    /// A daemon serves for the first time that this supervisor knows of.
    pub(super) fn begin_to_look_at_opened(&mut self) {
        let is_for_images =
            matches!(self.config.policy, Policy::Epoch | Policy::Transaction | Policy::Buffer);
        // Else somebody has decided who knows.
        if self.config.unproven && !is_for_images {
            self.looks.opened.begin();
            self.deadlines.set(Due::Opened, clock::now());
        }
    }

    /// Has somebody look who may wait.
    pub(super) fn look_at_opened(&mut self, now: u64) {
        if self.looks.opened.count() {
            self.deadlines.set(Due::Opened, now.saturating_add(LOOKS));
        }
        if self.looks.opened.is_away() || !self.is_at_rest() {
            return;
        }
        let Some(daemon) = self.daemon.holder().and_then(|daemon| daemon.try_clone()) else {
            return;
        };
        let Ok(wake) = self.events.counter_for_another() else { return };
        let (tell, told) = channel();
        let scouts = Arc::clone(&self.helpers.scouts);
        let look = move || {
            let seen = match scouts.opened(&daemon) {
                Sent::Back(found) => Some(found),
                Sent::Away | Sent::Not(_) => None,
            };
            let _ = tell.send(seen);
            let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
        };
        if threads::start_within(Duration::ZERO, "opened", look).is_ok() {
            self.looks.opened.sent(told);
        }
    }

    /// Whoever looked may be back.
    pub(super) fn hear_of_opened(&mut self) {
        let Some(seen) = self.looks.opened.take() else { return };
        if !self.is_at_rest() {
            return;
        }
        self.deadlines.cancel(Due::Opened);
        if let Some((path, holds)) = seen {
            let quoted = command_line([OsStr::new(&path.0)]);
            let policy = self.config.policy.effective();
            self.lost(
                Kind::Policy,
                &format!(
                    "the daemon writes to the disk image {quoted} ({holds}), which no argument of its names alone, so that it \
                     is held under the policy {policy}: what it has acknowledged and keeps in its memory is lost if it dies. \
                     Start it with `--policy epoch --image {quoted}`"
                ),
            );
        }
    }

    /// Whether the daemon serves, and nobody has anything open on the mount or asks for it.
    fn is_at_rest(&self) -> bool {
        self.life.serves()
            && self.recorder.store().handles_live() == 0
            && self.requests().count() == 0
    }
}
