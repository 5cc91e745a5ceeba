//! What commits checkpoints: it is started, told, heard, and what of it fails is said.

use super::Supervisor;
use super::parts::clients::Wait;
use super::parts::deadlines::Due;
use super::parts::desk::Commits;
use crate::clock;
use crate::clock::SECOND;
use crate::committer::{CommitJob, Committer, Failing, Steps};
use crate::degraded::Kind;
use crate::handover::Note;
use crate::protocol::Answer;
use crate::threads;
use belay_image::journal::Storage;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Commits that fail in a row before who has asked for a checkpoint is told.
const TRIES: u32 = 3;
/// How soon a committer that cannot be started is tried again.
const AGAIN: u64 = 5 * SECOND;

/// What somebody is told who has asked for a checkpoint.
pub(super) fn refusal(failing: &Failing) -> String {
    format!("{}; what was acknowledged is kept in memory, and this is tried again", failing.show())
}

impl Supervisor {
    /// Starts the committer, or has that tried again.
    pub(super) fn start_committer(&mut self) {
        if !self.has_epochs() || self.desk.has_committer() {
            return;
        }
        if self.buffers() {
            self.begin_buffer();
            return;
        }
        let started = self.commit_job().and_then(|job| {
            // Never when a daemon may have begun to write.
            if !self.desk.lacks_committer() {
                self.begin_epochs(&job)?;
            }
            // Later there is a mount that is served meanwhile.
            let again = self.desk.lacks_committer();
            Committer::start(job, if again { Duration::ZERO } else { threads::PATIENCE })
        });
        match started {
            Ok(committer) => {
                self.desk.is_started(committer);
                self.deadlines.cancel(Due::Committer);
                self.deadlines.set(Due::CommitLook, clock::now().saturating_add(self.hang_limit()));
            }
            Err(why) => {
                let now = clock::now();
                self.desk.is_not_started(now, why);
                self.deadlines.set(Due::Committer, now.saturating_add(AGAIN));
                self.look_at_commits();
            }
        }
    }

    pub(super) fn commit_job(&self) -> Result<CommitJob, String> {
        let image = self.config.image.as_ref().ok_or("no image is known")?;
        let files = image.files(&self.fds).map_err(|why| why.to_string())?;
        let steps = Steps::new(files.image.name(), files.journal.name());
        let files = Mutex::new(files);
        let event = self.events.counter_for_another().map_err(|why| why.to_string())?;
        let (memory, layout) = (Arc::clone(self.recorder.memory()), self.recorder.layout());
        let (last, new_journal, failing) = (Arc::default(), Arc::default(), Arc::default());
        let image_mail =
            belay_sys::dup_cloexec(self.fds.image_mail.as_fd()).map_err(|why| why.to_string())?;
        let named = self.config.image.as_ref().ok_or("no image is known")?;
        let image = (named.device, named.inode);
        let (opened, scouts) = (AtomicBool::new(false), Arc::clone(&self.helpers.scouts));
        Ok(CommitJob {
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

    /// The first epoch begins before the first daemon: one that never opens its image for writing
    /// ends epochs as well.
    fn begin_epochs(&self, job: &CommitJob) -> Result<(), String> {
        let overlay = self.overlay();
        if overlay.is_begun().map_err(|why| why.to_string())? {
            return Ok(());
        }
        let files = job.files.lock().unwrap_or_else(PoisonError::into_inner);
        let image = &files.image;
        let metadata =
            image.metadata().map_err(|why| format!("cannot look at {}: {why}", image.name()))?;
        overlay.discard_current(metadata.length).map_err(|why| why.to_string())
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
        self.desk.wake();
    }

    /// The committer has committed something, or failed to.
    pub(super) fn hear_committer(&mut self) {
        self.hold_journal(self.desk.new_journal());
        if self.desk.has_committed() {
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
        self.desk.hanging(clock::now(), self.hang_limit())
    }

    /// Looks whether a commit that was begun comes back, as nothing announces that it does not.
    pub(super) fn look_for_hanging_commit(&mut self, now: u64) {
        let Some(next) = self.desk.next_look(now, self.hang_limit()) else { return };
        self.deadlines.set(Due::CommitLook, next);
        if self.hanging_commit().is_some_and(|hanging| self.desk.is_news(&hanging)) {
            self.look_at_commits();
        }
    }

    /// Shows whether checkpoints reach the image.
    pub(super) fn look_at_commits(&mut self) {
        match self.desk.commits(clock::now(), self.hang_limit()) {
            Commits::None => {}
            Commits::Failing(failing) => {
                let failed_for = clock::now().saturating_sub(failing.since);
                let late = failing.corrupt || failing.hangs || failed_for >= self.sync_limit();
                // What is not safe stays where it is, and is tried again; but nobody is to wait for
                // ever.
                if late && self.desk.is_news(&failing) {
                    self.desk.declare(&failing);
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
            Commits::Fine => {
                self.desk.nothing_fails();
                self.restored(Kind::Commit);
            }
        }
    }
}
