//! Checkpoints, under the policy `epoch`: when to ask for one, and what commits it.

use super::clients::Wait;
use super::deadlines::Due;
use super::{SECOND, Supervisor};
use crate::clock;
use crate::committer::{Committer, Failing, Place, Steps};
use crate::degraded::Kind;
use crate::handover::Note;
use crate::ledger::Detection;
use crate::process::Exit;
use crate::protocol::Answer;
use crate::status::{Epoch, Forward};
use belay_image::journal::Storage;
use belay_image::overlay::{Capacity, Overlay};
use belay_oplog::Oplog;
use belay_recorder::control::{Counter, options};
use belay_sys::Mapping;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often an op-log that looks damaged is looked at.
const LOOKS: u32 = 3;
/// Commits that fail in a row before who has asked for a checkpoint is told.
const TRIES: u32 = 3;
/// How soon a committer that cannot be started is tried again.
const AGAIN: u64 = 5 * SECOND;
/// What an epoch may have in memory without any of it being given back, in bytes.
const WORTH: u64 = 32 << 20;

/// The failed try of which those who wait were told last. The daemon that hears of one tells of something new itself, so each try is
/// told once, however often it is looked at.
#[derive(Debug, Default)]
pub(super) struct Declared(Option<(u64, u32)>);

impl Declared {
    /// Whether that try is another one. It is the last one now.
    fn is_new(&mut self, failing: &Failing) -> bool {
        let new = self.would_be_new(failing);
        self.0 = Some((failing.since, failing.tries));
        new
    }

    fn would_be_new(&self, failing: &Failing) -> bool {
        self.0 != Some((failing.since, failing.tries))
    }
}

/// What somebody is told who has asked for a checkpoint.
fn refusal(failing: &Failing) -> String {
    format!("{}; what was acknowledged is kept in memory, and this is tried again", failing.show())
}

/// When the daemon is asked for a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asking {
    /// How many requests there had been the last time.
    requests: u64,
    /// It is asked for soon again, as somebody waits for one.
    again: bool,
}

impl Supervisor {
    pub(super) fn has_epochs(&self) -> bool {
        self.config.option_bits() & options::EPOCH != 0
    }

    /// Starts the committer, or has that tried again.
    pub(super) fn start_committer(&mut self) {
        if !self.has_epochs() || self.committer.is_some() {
            return;
        }
        if self.buffers() {
            self.begin_buffer();
            return;
        }
        let started = self.commit_place().and_then(|place| {
            // Never when a daemon may have begun to write.
            if self.no_committer.is_none() {
                self.begin_epochs(&place)?;
            }
            // Later there is a mount that is served meanwhile.
            let first = self.no_committer.is_none();
            Committer::start(place, if first { crate::threads::PATIENCE } else { Duration::ZERO })
        });
        match started {
            Ok(committer) => {
                self.committer = Some(committer);
                self.no_committer = None;
                self.deadlines.cancel(Due::Committer);
                self.deadlines.set(Due::CommitLook, clock::now().saturating_add(self.hang_limit()));
            }
            Err(why) => {
                let (since, tries) = match &self.no_committer {
                    Some(before) => (before.since, before.tries.saturating_add(1)),
                    None => (clock::now(), 1),
                };
                let again = clock::now().saturating_add(AGAIN);
                let failing = Failing { since, tries, why, spoilt: false, hangs: false };
                self.no_committer = Some(failing);
                self.deadlines.set(Due::Committer, again);
                self.look_at_commits();
            }
        }
    }

    pub(super) fn commit_place(&self) -> Result<Place, String> {
        let image = self.config.image.as_ref().ok_or("no image is known")?;
        let files = image.files(&self.fds).map_err(|why| why.to_string())?;
        let steps = Steps::new(files.image.name(), files.journal.name());
        let files = Mutex::new(files);
        let event =
            belay_sys::dup_cloexec(self.committed.as_fd()).map_err(|why| why.to_string())?;
        let (memory, layout) = (Arc::clone(&self.memory), self.layout);
        let (last, new_journal, failing) = (Arc::default(), Arc::default(), Arc::default());
        let image_mail =
            belay_sys::dup_cloexec(self.fds.image_mail.as_fd()).map_err(|why| why.to_string())?;
        let named = self.config.image.as_ref().ok_or("no image is known")?;
        let image = (named.device, named.inode);
        let (opened, scouts) = (AtomicBool::new(false), Arc::clone(&self.scouts));
        Ok(Place {
            memory,
            layout,
            event,
            files,
            image,
            image_mail,
            opened,
            scouts,
            new_journal,
            last,
            failing,
            steps,
        })
    }

    /// The first epoch begins before the first daemon: one that never opens its image for writing ends epochs as well.
    fn begin_epochs(&self, place: &Place) -> Result<(), String> {
        let overlay = self.overlay();
        if overlay.is_begun().map_err(|why| why.to_string())? {
            return Ok(());
        }
        let files = place.files.lock().unwrap_or_else(PoisonError::into_inner);
        let image = &files.image;
        let facts =
            image.facts().map_err(|why| format!("cannot look at {}: {why}", image.name()))?;
        overlay.discard_current(facts.length).map_err(|why| why.to_string())
    }

    /// The keeper holds the lock on the journal, also of one that had to be made again.
    pub(super) fn hold_journal(&mut self, journal: Option<OwnedFd>) {
        let Some(journal) = journal else { return };
        let old = std::mem::replace(&mut self.fds.journal, journal);
        crate::handover::close_aside(old);
        self.keeper.pass_on(&Note::Journal, &self.fds, "journal");
    }

    /// The daemon has said that something has changed.
    pub(super) fn wake_committer(&mut self) {
        if let Some(committer) = &self.committer {
            committer.wake();
        }
    }

    /// The committer has committed something, or failed to.
    pub(super) fn hear_committer(&mut self) {
        self.hold_journal(self.committer.as_ref().and_then(Committer::new_journal));
        if self.committer.as_mut().is_some_and(Committer::has_committed) {
            // Somebody may wait for just that.
            self.wake_daemon(false);
        }
        self.look_at_commits();
        self.answer_safe();
    }

    /// How long who waits for a commit waits, in nanoseconds; and how long one may give no answer.
    pub(super) fn sync_limit(&self) -> u64 {
        self.config.checkpoints.sync_timeout_ms.saturating_mul(SECOND / 1000)
    }

    /// How long a commit may take without giving an answer, in nanoseconds.
    pub(super) fn hang_limit(&self) -> u64 {
        self.sync_limit().max(SECOND)
    }

    /// A commit that does not come back.
    pub(super) fn hanging_commit(&self) -> Option<Failing> {
        self.committer.as_ref()?.hanging(clock::now(), self.hang_limit())
    }

    /// Looks whether a commit that was begun comes back, as nothing announces that it does not.
    pub(super) fn look_for_hanging_commit(&mut self, now: u64) {
        let Some(committer) = &self.committer else { return };
        // What begins right after a look that finds nothing hangs at the next one, at the earliest.
        let limit = self.hang_limit();
        let next = committer.next_look(now, limit).unwrap_or(now.saturating_add(limit));
        self.deadlines.set(Due::CommitLook, next);
        if self.hanging_commit().is_some_and(|hanging| self.declared.would_be_new(&hanging)) {
            self.look_at_commits();
        }
    }

    /// Shows whether checkpoints reach the image.
    pub(super) fn look_at_commits(&mut self) {
        let failing = match (&self.committer, &self.no_committer) {
            (Some(committer), _) => self.hanging_commit().or_else(|| committer.failing()),
            // Without one, nothing reaches the image either.
            (None, Some(failing)) => Some(failing.clone()),
            (None, None) => return,
        };
        match failing {
            Some(failing) => {
                let failed_for = clock::now().saturating_sub(failing.since);
                let late = failing.spoilt || failing.hangs || failed_for >= self.sync_limit();
                // What is not safe stays where it is, and is tried again; but nobody is to wait for ever.
                if late && self.declared.is_new(&failing) {
                    self.control().fail_syncs();
                    self.wake_daemon(false);
                }
                self.answer_waiting(|wait| match wait {
                    Wait::Safe(..) if failing.hangs || failing.tries >= TRIES => {
                        Some(Answer::Refused { why: refusal(&failing) })
                    }
                    _ => None,
                });
                self.degrade(Kind::Commit, &failing.show());
            }
            None => {
                self.declared = Declared::default();
                self.restored(Kind::Commit);
            }
        }
    }

    /// Asks for a checkpoint if the last is long enough ago and somebody has done something since.
    pub(super) fn ask_for_checkpoint(&mut self, now: u64) {
        let Asking { requests, again } = self.asking;
        if !self.has_epochs() || self.book.read_only.is_some() {
            return;
        }
        let served = self.control().counter(Counter::Requests);
        // What is sealed only has to reach the image.
        let current = self.overlay().epoch().unwrap_or(0);
        let waits = self
            .clients
            .has_waiting(|wait| matches!(wait, Wait::Safe(epoch, _) if epoch >= current));
        let pause = self.config.checkpoints.interval_ms.saturating_mul(SECOND / 1000);
        if again && !waits {
            // The one that was waited for has been made meanwhile: the next has its time.
            self.asking.again = false;
            self.deadlines.set(Due::Checkpoint, now.saturating_add(pause));
            return;
        }
        // One that could not be made now is asked for again while somebody waits.
        let pause = if waits { pause.min(SECOND / 4) } else { pause };
        self.asking = Asking { requests: served, again: waits };
        self.deadlines.set(Due::Checkpoint, now.saturating_add(pause));
        let due = waits || served != requests && !self.buffers();
        if due && self.complete_or_first() {
            self.control().ask_for_checkpoint();
            // It may sleep. What it is asked for counts as a request: where nothing is to be done and nobody waits, it would be
            // asked again for ever.
            let worth = waits || self.control().logged().0 > 0;
            self.wake_daemon(worth);
        }
        if self.complete_or_first() {
            self.ask_for_trim(served == requests);
        }
    }

    /// A client wants a checkpoint.
    pub(super) fn ask_for_epoch(&mut self) -> Result<Wait, String> {
        if !self.has_epochs() {
            return Err(format!(
                "its policy is {}: checkpoints are made under the policy epoch only, as what the daemon acknowledges \
                 otherwise is on its back end by then",
                self.config.policy.effective()
            ));
        }
        if self.buffers_files() {
            return Err("it stores each file when that is flushed, and has no other checkpoints: fsync its files".into());
        }
        if let Some(hanging) = self.hanging_commit() {
            return Err(refusal(&hanging));
        }
        let epoch = self.overlay().epoch().map_err(|why| why.to_string())?;
        self.deadlines.set(Due::Checkpoint, 0); // now
        Ok(Wait::Safe(epoch, self.control().checkpoints_failed().0))
    }

    /// Tells those whose checkpoint is safe, or has failed.
    pub(super) fn answer_safe(&mut self) {
        if !self.has_epochs() || !self.clients.has_waiting(|wait| matches!(wait, Wait::Safe(..))) {
            return;
        }
        let (failures, errno) = self.control().checkpoints_failed();
        let committed = self.overlay().committed().unwrap_or(0);
        self.answer_waiting(|wait| match wait {
            Wait::Safe(epoch, _) if epoch <= committed => Some(Answer::Safe { epoch }),
            Wait::Safe(_, before) if failures > before => Some(Answer::Refused {
                why: format!(
                    "the daemon did not write what it holds: {}; is the way right that its profile, or --flush, says?",
                    std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0))
                ),
            }),
            _ => None,
        });
    }

    pub(super) fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        Overlay::new(&self.memory, self.layout.epochs, Capacity::MOUNT)
    }

    /// What the status says of epochs.
    pub(super) fn epoch_facts(&self) -> Option<Epoch> {
        if !self.has_epochs() {
            return None;
        }
        let overlay = self.overlay();
        let (log_records, log_bytes) = self.control().logged();
        let last = self.committer.as_ref().and_then(Committer::last);
        Some(Epoch {
            dirty_bytes: overlay.dirty_bytes().unwrap_or(0),
            log_records,
            log_bytes,
            last_commit_seconds: last.map(|at| clock::now().saturating_sub(at) / SECOND),
            failed: self.control().checkpoints_failed().0,
            flush: self.config.checkpoints.flush.name().to_owned(),
            rolling_forward: self
                .control()
                .forward()
                .filter(|(generation, _)| !self.complete && *generation == self.book.generation)
                .map(|(_, record)| Forward {
                    record: u64::from(record),
                    of: self.control().forward_length(),
                }),
            storing: self.finished.is_some() || self.book.stop.is_some() && self.is_storing(),
        })
    }

    /// The daemon has ended with `exit`. Whether it did so to have written what it held, in which case the epoch ends
    /// here: what it wrote on its way is the checkpoint on which its successor starts.
    pub(super) fn ended_for_checkpoint(&mut self, exit: Exit) -> bool {
        let told = self.control().retiring() == Some(self.book.generation);
        if self.buffers() {
            self.deadlines.cancel(Due::Retiring);
            return self.ended_and_stored(exit) && told;
        }
        if !told || !self.has_epochs() {
            return false;
        }
        self.deadlines.cancel(Due::Retiring);
        if exit != Exit::Code(0) {
            tracing::warn!(
                "the daemon {} when it was to end for a checkpoint: it is dropped, and what was done since the last one \
                 is done again",
                exit.told()
            );
            return false;
        }
        // Nobody else uses the overlay now.
        match self.overlay().seal() {
            Ok(Some(_)) => {
                self.wake_committer();
                true
            }
            Ok(None) => false,
            Err(why) => {
                tracing::error!("{why}");
                false
            }
        }
    }

    fn is_retiring(&self) -> bool {
        self.has_epochs() && self.control().retiring() == Some(self.book.generation)
    }

    /// A daemon that was told to end has so much time for it.
    pub(super) fn look_for_retiring(&mut self, now: u64) {
        if self.is_retiring() {
            let limit = self.config.start_timeout_ms.saturating_mul(SECOND / 1000);
            self.deadlines.set_first(Due::Retiring, now.saturating_add(limit));
        }
    }

    /// That time is over.
    pub(super) fn retiring_takes_too_long(&mut self, now: u64) {
        if !self.is_retiring() {
            return;
        }
        // It may not be killed, or not end.
        self.deadlines.set(Due::Retiring, now.saturating_add(SECOND));
        if self.is_being_killed() {
            return;
        }
        if self.daemon.is_some() && self.kill_daemon() {
            let request = "its end, for a checkpoint".to_owned();
            self.cause = Some((Detection::Hang { request }, now));
        }
    }

    /// Asks for memory to be given back that a long epoch took, when epochs have become short again or nobody does
    /// anything.
    fn ask_for_trim(&mut self, idle: bool) {
        let held = self.overlay().dirty_bytes().unwrap_or(0).max(self.control().logged().1);
        if held > WORTH {
            self.bloated = true;
        }
        if self.bloated && (idle || held <= WORTH) {
            self.bloated = idle && held > WORTH;
            self.control().ask_for_trim();
            self.wake_daemon(false);
        }
    }

    fn complete_or_first(&self) -> bool {
        self.complete || self.book.generation == 0
    }

    /// How many requests were acknowledged that no checkpoint has; `None` if that cannot be told.
    pub(super) fn unsaved(&self) -> Option<usize> {
        let at = self.layout.epochs + Capacity::MOUNT.words();
        let look = || {
            let epoch = self.overlay().epoch().ok()?;
            let memory = Arc::clone(&self.memory);
            let log = Oplog::look(memory, at, belay_oplog::Capacity::MOUNT, epoch).ok()?;
            Some(log.sizes().records)
        };
        // What a daemon changes meanwhile looks damaged.
        (0..LOOKS).find_map(|_| look())
    }

    /// Whether there is something that only the daemon can bring to where it is to be, and that can come there still. Of what
    /// is damaged nobody knows that it is worth to be waited for.
    pub(super) fn has_to_store(&self) -> bool {
        !self.is_spoilt() && self.unsaved().is_some_and(|requests| requests > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_try_is_declared_once() {
        let mut declared = Declared::default();
        let failing =
            |since, tries| Failing { since, tries, why: String::new(), spoilt: true, hangs: false };
        for (since, tries) in [(1, 1), (1, 2), (5, 1)] {
            assert!(declared.is_new(&failing(since, tries)));
            // However often the daemon answers that it has heard.
            assert!(!declared.is_new(&failing(since, tries)));
            assert!(!declared.is_new(&Failing { why: "else".to_owned(), ..failing(since, tries) }));
        }
    }
}
