//! Checkpoints, under the policy `epoch`: when to ask for one, and who is told of it.

use super::Supervisor;
use super::commits::refusal;
use super::parts::clients::Wait;
use super::parts::deadlines::Due;
use crate::clock;
use crate::clock::SECOND;
use crate::detection::Detection;
use crate::process::Exit;
use crate::protocol::Answer;
use crate::status::{Epoch, Forward};
use belay_image::overlay::{Capacity, Overlay};
use belay_oplog::Oplog;
use belay_recorder::control::{Counter, Options};
use belay_sys::Mapping;
use std::sync::Arc;

/// How often an op-log that looks damaged is looked at.
const LOOKS: u32 = 3;

impl Supervisor {
    pub(super) fn has_epochs(&self) -> bool {
        self.config.options().contains(Options::EPOCH)
    }

    /// Asks for a checkpoint if the last is long enough ago and somebody has done something since.
    pub(super) fn ask_for_checkpoint(&mut self, now: u64) {
        if !self.has_epochs() || self.book.content.read_only.is_some() {
            return;
        }
        let served = self.control().counter(Counter::Requests);
        // What is sealed only has to reach the image.
        let current = self.overlay().epoch().unwrap_or(0);
        let waits = self
            .clients
            .has_waiting(|wait| matches!(wait, Wait::Safe(epoch, _) if epoch >= current));
        let pause = self.config.checkpoints.interval_ms.saturating_mul(SECOND / 1000);
        let turn = self.desk.turn(now, served, waits, pause, !self.buffers());
        self.deadlines.set(Due::Checkpoint, turn.next);
        let Some(idle) = turn.idle else { return };
        if turn.due && self.complete_or_first() {
            self.control().ask_for_checkpoint();
            // It may sleep. What it is asked for counts as a request: where nothing is to be done
            // and nobody waits, it would be asked again for ever.
            let worth = waits || self.control().logged().0 > 0;
            self.wake_daemon(worth);
        }
        if self.complete_or_first() {
            self.ask_for_trim(idle);
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
            return Err("the daemon stores each file when that file is flushed, and there are no other checkpoints: fsync the files".into());
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
                    "the daemon did not write what it holds: {}; check `flush` in its profile, or --flush",
                    std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0))
                ),
            }),
            _ => None,
        });
    }

    pub(super) fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        self.recorder.overlay()
    }

    /// What the status says of epochs.
    pub(super) fn epoch_status(&self) -> Option<Epoch> {
        if !self.has_epochs() {
            return None;
        }
        let overlay = self.overlay();
        let (log_records, log_bytes) = self.control().logged();
        let last = self.desk.last();
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
                .filter(|(generation, _)| {
                    !self.life.serves() && *generation == self.book.generation
                })
                .map(|(_, record)| Forward {
                    record: u64::from(record),
                    of: self.control().forward_length(),
                }),
            storing: self.life.ended().is_some() || self.book.stop.is_some() && self.is_storing(),
        })
    }

    /// The daemon has ended with `exit`. Whether it did so to have written what it held, in which
    /// case the epoch ends here: what it wrote on its way is the checkpoint on which its successor
    /// starts.
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
                 is replayed",
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
        if self.daemon.holder().is_some() && self.kill_daemon() {
            let request = "its end, for a checkpoint".to_owned();
            self.daemon.is_to_die(Detection::Hang { request }, now);
        }
    }

    /// Asks for memory to be given back that a long epoch took, when epochs have become short again
    /// or nobody does anything.
    fn ask_for_trim(&mut self, idle: bool) {
        let held = self.overlay().dirty_bytes().unwrap_or(0).max(self.control().logged().1);
        if self.desk.wants_trim(held, idle) {
            self.control().ask_for_trim();
            self.wake_daemon(false);
        }
    }

    fn complete_or_first(&self) -> bool {
        self.life.serves() || self.book.generation == 0
    }

    /// How many requests were acknowledged that no checkpoint has; `None` if that cannot be told.
    pub(super) fn unsaved(&self) -> Option<usize> {
        let at = self.recorder.layout().epochs + Capacity::MOUNT.words();
        let look = || {
            let epoch = self.overlay().epoch().ok()?;
            let memory = Arc::clone(self.recorder.memory());
            let log = Oplog::look(memory, at, belay_oplog::Capacity::MOUNT, epoch).ok()?;
            Some(log.sizes().records)
        };
        // What a daemon changes meanwhile looks damaged.
        (0..LOOKS).find_map(|_| look())
    }

    /// Whether there is something that only the daemon can bring to where it is to be, and that can
    /// come there still. Of what is damaged nobody knows that it is worth to be waited for.
    pub(super) fn has_to_store(&self) -> bool {
        !self.is_corrupt() && self.unsaved().is_some_and(|requests| requests > 0)
    }
}
