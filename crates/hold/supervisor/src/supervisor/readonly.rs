//! When what was acknowledged since the last checkpoint cannot be done again: the mount becomes
//! read-only, and it is kept.
//!
//! Membrane gives up a file system whose recovery fails. Here nobody is to lose what was
//! acknowledged: it goes to a file for `belay replay`, and what the checkpoint holds can be read
//! meanwhile.

use super::Supervisor;
use crate::clock;
use crate::degraded::Kind;
use crate::degraded::ReadOnly;
use crate::detection::Detection;
use crate::heartbeat;
use crate::instances::REPORTS;
use crate::keep::Acknowledged;
use crate::ledger::Forward;
use crate::process::Exit;
use crate::text::{self, count};
use belay_oplog::kept::Head;
use belay_recorder::Blame;
use belay_recorder::control::Instant;
use rustix::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

/// Roll-forwards that may fail by the daemon's own doing.
const OWN: u32 = 2;
/// The exit code of a daemon whose shim does not let it begin.
const REFUSED: i32 = 125;
/// How long a disk may take for what was acknowledged, if it has given no answer for long.
const SOON: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Generation `dead` has died: counts whether that was in the roll-forward.
    pub(super) fn count_forward(&mut self, dead: u32, blame: Blame, detection: &Detection) {
        let failed = self.control().forward().is_some_and(|(generation, _)| generation == dead);
        let planned = matches!(
            detection,
            Detection::Requested { .. }
                | Detection::Restart
                | Detection::Takeover
                | Detection::Checkpoint
        );
        // That it could not end as it should says nothing of what it was given.
        let failed = failed && self.control().retiring() != Some(dead);
        let forward = &mut self.book.content.forward;
        if failed && !planned {
            forward.all += 1;
            forward.own += u32::from(blame.is_its_own());
        } else if !failed && self.control().instant(Instant::Open) != 0 {
            self.book.content.forward = Forward::default();
        }
    }

    /// Whether a life ended before it was `ready` as its shim refuses what is on record: then any
    /// other would.
    pub(super) fn is_record_corrupt(&self, ready: bool, exit: Exit) -> bool {
        let refused = !ready && exit == Exit::Code(REFUSED) && self.has_epochs();
        refused && Acknowledged::read(self.recorder.memory(), self.recorder.layout()).is_err()
    }

    /// Makes the mount read-only if that is all that is left. `looping`: belay would give it up.
    pub(super) fn consider_read_only(&mut self, looping: bool) -> bool {
        let Forward { own, all } = self.book.content.forward;
        if !self.has_epochs() || self.book.content.read_only.is_some() {
            return false;
        }
        // Of deaths that may have come from outside, `--max-crashes` has the say.
        if own < OWN && !looping {
            return false;
        }
        let kept = Acknowledged::read(self.recorder.memory(), self.recorder.layout());
        if kept.as_ref().is_ok_and(Acknowledged::is_empty) {
            return false; // it is not the op-log that daemons die of
        }
        let record = self.control().forward().map(|(_, record)| record);
        let what = kept.as_ref().ok().zip(record).and_then(|(kept, record)| kept.describe(record));
        let reason = match (own.max(all), what) {
            (0, _) => "no daemon came to replay what was acknowledged".to_owned(),
            (times, None) => {
                format!("replaying what was acknowledged failed {}", count(times.into(), "time"))
            }
            (times, Some(what)) => {
                let times = count(times.into(), "time");
                format!("replaying what was acknowledged failed {times}, last at {what}")
            }
        };
        let operations = kept.as_ref().map_or(0, |kept| kept.len() as u64);
        let kept = kept.and_then(|kept| self.keep(kept, &reason));
        let place = self.mountpoint();
        match &kept {
            Ok(path) => tracing::error!(
                "{place} is read-only from now on, as it was at the last checkpoint: {reason}. The {} kept \
                 in {}; when the daemon is mended, unmount, mount again, and run `belay replay \
                 {} {place}`",
                text::acknowledged_since(operations),
                path.display(),
                path.display()
            ),
            Err(why) => tracing::error!(
                "{place} is read-only from now on, as it was at the last checkpoint: {reason}. What was acknowledged since \
                 could not be kept: {why}"
            ),
        }
        if let Err(why) = &kept {
            let what = format!("what was acknowledged since the last checkpoint is lost: {why}");
            self.lost(Kind::Data, &what);
        }
        let oplog = kept.ok().map(|path| path.display().to_string());
        let read_only = ReadOnly { reason, oplog, operations };
        self.control().set_forward(0, None);
        if let Some(crash) = &mut self.book.crash {
            crash.read_only = Some(read_only.clone());
        }
        self.book.content.read_only = Some(read_only);
        self.book.content.forward = Forward::default();
        (self.book.tries.unproductive, self.book.tries.idle) = (0, 0);
        self.keep_book();
        true
    }

    fn keep(&self, kept: Acknowledged, reason: &str) -> Result<PathBuf, String> {
        let head = Head {
            mountpoint: self.mountpoint(),
            command: self.config.command_line(),
            time: clock::rfc3339(clock::wall_ms()),
            reason: reason.to_owned(),
            ..Head::default()
        };
        let folder = self.fds.journal_folder.as_fd();
        let image = self.config.image.as_ref().map(|image| (image, folder));
        // A disk that gives no answer now is not waited for once more.
        let limit = Duration::from_nanos(self.sync_limit());
        let patience = if self.hanging_commit().is_some() { SOON } else { limit.max(SOON) };
        // As long as the user has said, which may be longer than any other wait.
        heartbeat::beat(&self.fds.ledger, true);
        kept.keep(head, image, self.folder.child(REPORTS), patience)
    }

    /// Keeps what was acknowledged and no checkpoint has; gives the file, and how many operations
    /// are in it.
    pub(super) fn keep_oplog(&self, reason: &str) -> Result<(PathBuf, usize), String> {
        let kept = Acknowledged::read(self.recorder.memory(), self.recorder.layout())?;
        let operations = kept.len();
        Ok((self.keep(kept, reason)?, operations))
    }
}
