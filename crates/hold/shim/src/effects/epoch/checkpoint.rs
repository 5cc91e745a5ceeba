//! When a checkpoint is made, and what is done for it here.
//!
//! It is due when much has collected, or less and it costs little ([`super::pace`]), when the supervisor asks (its timer), and when the session has
//! somebody waiting for one. It can be begun when the epoch before is on the image.

use super::clock;
use crate::effects::{Policy, policy};
use crate::start::{Shim, now};
use belay_host::Device;
use belay_image::overlay::Overlay;
use belay_recorder::control::{Counter, options};
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::Opcode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

impl Shim {
    /// The calling thread asks for more to do: is there something about epochs to be looked at?
    #[inline]
    pub(crate) fn epoch_rest(&self) {
        clock::thaw();
        self.epoch_bring_near();
        let epochs = &self.epochs;
        let asked = self.control().checkpoints_asked() != epochs.asked.load(Relaxed);
        let committed = self.overlay().committed().unwrap_or(0) != epochs.committed.load(Relaxed);
        let failed = self.control().syncs_failed() != epochs.syncs_failed.load(Relaxed);
        if asked || committed || failed || epochs.due.load(Relaxed) || self.is_trim_due() {
            self.host.look_again();
        }
    }

    /// So many bytes have been written to the image since the last checkpoint.
    #[inline]
    pub(super) fn epoch_grown(&self, overlay: &Overlay<'_, Arc<Mapping>>, dirty: u64) {
        let wishes = &self.epochs.wishes;
        if dirty > wishes.dirty_bytes || dirty > wishes.early_bytes && self.is_early(overlay) {
            self.epochs.due.store(true, Relaxed);
        }
    }

    /// A reply has come, and what it acknowledges is in the op-log.
    #[inline]
    pub(crate) fn epoch_logged(&self, session: &Session<Arc<Mapping>>) {
        if policy() != Policy::Epoch || self.epochs.due.load(Relaxed) {
            return;
        }
        if self.buffers_files() {
            return; // there are no checkpoints
        }
        let wishes = &self.epochs.wishes;
        let early = wishes.early_bytes;
        // A record takes longer to be done again than as many bytes of data.
        let much = session.log_sizes().is_some_and(|sizes| {
            sizes.record_bytes as u64 > early / 8 || sizes.data_bytes as u64 > early
        });
        if session.is_log_long(wishes.log_bytes) || much && self.is_early(&self.overlay()) {
            self.epochs.due.store(true, Relaxed);
        }
    }

    /// Whether the daemon stores files one by one, and all else at once.
    pub(super) fn buffers_files(&self) -> bool {
        self.options & options::BUFFER_FILES != 0
    }

    /// Whether a checkpoint now would cost little.
    #[cold]
    fn is_early(&self, overlay: &Overlay<'_, Arc<Mapping>>) -> bool {
        let epochs = &self.epochs;
        epochs.wishes.early_bytes > 0
            && overlay.can_seal().unwrap_or(false)
            && epochs.pace.allows(now())
    }

    /// A request has arrived, and `session` has it.
    #[inline]
    pub(crate) fn epoch_taken(&self, opcode: Opcode, session: &Session<Arc<Mapping>>) {
        if opcode == Opcode::WRITE {
            self.epochs.ahead.want_log(session.next_log_page());
        }
    }

    /// Looks whether a checkpoint can begin, and tells the session what is safe by now.
    pub(crate) fn epoch_look(&self, session: &mut Session<Arc<Mapping>>) {
        if policy() != Policy::Epoch {
            return;
        }
        session.set_time(clock::real());
        let (overlay, epochs) = (self.overlay(), &self.epochs);
        let committed = overlay.committed().unwrap_or(0);
        if epochs.committed.swap(committed, Relaxed) != committed {
            session.set_durable(committed);
        }
        let failed = self.control().syncs_failed();
        if epochs.syncs_failed.swap(failed, Relaxed) != failed {
            session.fail_syncs();
        }
        if session.is_rolling_forward()
            && self.may_cut(session)
            && overlay.can_seal().unwrap_or(false)
        {
            epochs.pace.begin(now());
            session.want_cut();
        }
        let asked = self.control().checkpoints_asked();
        let due = epochs.due.load(Relaxed)
            || epochs.asked.load(Relaxed) != asked
            || session.is_log_long(epochs.wishes.log_bytes)
            || session.wants_checkpoint();
        let at = now();
        if due && overlay.can_seal().unwrap_or(false) && session.begin_checkpoint(at) {
            epochs.pace.begin(at);
            epochs.asked.store(asked, Relaxed);
            epochs.due.store(false, Relaxed);
        }
    }

    /// Whether a checkpoint on the way of a roll-forward may be made now. One for which the daemon is ended has a pace of its own;
    /// where the mount is gone it ends anyway, when it has done all, and nobody is there to start others for ever.
    fn may_cut(&self, session: &Session<Arc<Mapping>>) -> bool {
        match session.ends_for_checkpoints() {
            true => session.is_to_be_cut() && !self.readiness().gone,
            false => self.epochs.pace.allows_cut(now()),
        }
    }

    /// All that the daemon holds is on its image as the overlay has it: the epoch ends. The session is held, so that
    /// nothing is put on record in between.
    #[cold]
    pub(crate) fn epoch_seal(&self, session: &mut Session<Arc<Mapping>>) {
        let alone = self.epochs.overlay.write().unwrap_or_else(PoisonError::into_inner);
        if session.holds_nothing() && self.overlay().is_dirty().unwrap_or(true) {
            session.refuse_checkpoint(now());
            return self.tell();
        }
        if !session.prepare_cut() {
            return;
        }
        // Who has asked up to now has all that was acknowledged in this one; of one on the way of a roll-forward a part only.
        let whole = !session.is_rolling_forward();
        let asked = self.control().checkpoints_asked();
        // That one store ends it, and with it what the op-log holds, or, in a roll-forward, what was done of that.
        let sealed = self.overlay().seal();
        drop(alone);
        match sealed {
            Ok(Some(ended)) => {
                session.sealed(ended + 1);
                self.epochs.pace.end(now());
                if whole {
                    self.epochs.asked.store(asked, Relaxed);
                }
            }
            _ => session.abandon_checkpoint(),
        }
        self.tell();
    }

    /// The daemon is given a request of the roll-forward: how long it takes for these is told apart.
    pub(crate) fn epoch_forwarded(&self) {
        self.epochs.forwarded.store(now(), Relaxed);
    }

    /// It has answered a request of belay's own.
    pub(crate) fn epoch_answered(&self) {
        let since = self.epochs.forwarded.swap(0, Relaxed);
        if since != 0 {
            let took = now().saturating_sub(since);
            self.control().count(Counter::RolledForwardDaemon, took);
        }
    }
}
