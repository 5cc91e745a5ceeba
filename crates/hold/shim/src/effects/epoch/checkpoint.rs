//! When a checkpoint is made, and what is done for it here.
//!
//! It can be begun when it is due ([`super::due`]), the epoch before is on the image, and the
//! session is ready.

use super::Epoch;
use super::clock;
use crate::shim::now;
use belay_host::Device;
use belay_image::overlay::Overlay;
use belay_recorder::control::{Counter, Options};
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::Opcode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

impl Epoch<'_> {
    /// The calling thread asks for more to do: is there something about epochs to be looked at?
    #[inline]
    pub(crate) fn rest(&self) {
        clock::thaw();
        let epochs = self.state;
        epochs.ahead.bring_near(&**self.shim.host.memory());
        let asked = epochs.due.is_asked(&self.shim.control());
        let committed = self.overlay().committed().unwrap_or(0) != epochs.committed.load(Relaxed);
        let failed = self.shim.control().syncs_failed() != epochs.syncs_failed.load(Relaxed);
        if asked || committed || failed || epochs.due.is_seen() || self.is_trim_due() {
            self.shim.host.look_again();
        }
    }

    /// So many bytes have been written to the image since the last checkpoint.
    #[inline]
    pub(super) fn grown(&self, overlay: &Overlay<'_, Arc<Mapping>>, dirty: u64) {
        self.state.due.overlay_has(dirty, || self.is_cheap(overlay));
    }

    /// A reply has come, and what it acknowledges is in the op-log.
    #[inline]
    pub(crate) fn logged(&self, session: &Session<Arc<Mapping>>) {
        let due = &self.state.due;
        // Where files are stored one by one there are no checkpoints.
        if !due.is_seen() && !self.buffers_files() {
            due.log_has(session, session.log_sizes(), || self.is_cheap(&self.overlay()));
        }
    }

    /// Whether the daemon stores files one by one, and all else at once.
    pub(super) fn buffers_files(&self) -> bool {
        self.shim.options.contains(Options::BUFFER_FILES)
    }

    /// Whether a checkpoint now would cost little.
    #[cold]
    fn is_cheap(&self, overlay: &Overlay<'_, Arc<Mapping>>) -> bool {
        overlay.can_seal().unwrap_or(false) && self.state.pace.allows(now())
    }

    /// A request has arrived, and `session` has it.
    #[inline]
    pub(crate) fn taken(&self, opcode: Opcode, session: &Session<Arc<Mapping>>) {
        if opcode == Opcode::WRITE {
            self.state.ahead.want_log(session.next_log_page());
        }
    }

    /// Looks whether a checkpoint can begin, and tells the session what is safe by now.
    pub(crate) fn look(&self, session: &mut Session<Arc<Mapping>>) {
        session.set_time(clock::real());
        let (overlay, epochs) = (self.overlay(), self.state);
        let committed = overlay.committed().unwrap_or(0);
        if epochs.committed.swap(committed, Relaxed) != committed {
            session.set_durable(committed);
        }
        let failed = self.shim.control().syncs_failed();
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
        let asked = self.shim.control().checkpoints_asked();
        let at = now();
        if epochs.due.is_due(session)
            && overlay.can_seal().unwrap_or(false)
            && session.begin_checkpoint(at)
        {
            epochs.pace.begin(at);
            epochs.due.begun(asked);
        }
    }

    /// Whether a checkpoint on the way of a roll-forward may be made now. One for which the daemon
    /// is ended has a pace of its own; where the mount is gone it ends anyway, when it has done
    /// all, and nobody is there to start others for ever.
    fn may_cut(&self, session: &Session<Arc<Mapping>>) -> bool {
        match session.ends_for_checkpoints() {
            true => session.is_to_be_cut() && !self.shim.readiness().gone,
            false => self.state.pace.allows_cut(now()),
        }
    }

    /// All that the daemon holds is on its image as the overlay has it: the epoch ends. The session
    /// is held, so that nothing is put on record in between.
    #[cold]
    pub(crate) fn seal(&self, session: &mut Session<Arc<Mapping>>) {
        let alone = self.state.overlay.write().unwrap_or_else(PoisonError::into_inner);
        if session.holds_nothing() && self.overlay().is_dirty().unwrap_or(true) {
            session.refuse_checkpoint(now());
            return self.shim.tell();
        }
        if !session.prepare_cut() {
            return;
        }
        // Who has asked up to now has all that was acknowledged in this one; of one on the way of a
        // roll-forward a part only.
        let whole = !session.is_rolling_forward();
        let asked = self.shim.control().checkpoints_asked();
        // That one store ends it, and with it what the op-log holds, or, in a roll-forward, what
        // was done of that.
        let sealed = self.overlay().seal();
        drop(alone);
        match sealed {
            Ok(Some(ended)) => {
                session.sealed(ended + 1);
                self.state.pace.end(now());
                if whole {
                    self.state.due.sealed(asked);
                }
            }
            _ => session.abandon_checkpoint(),
        }
        self.shim.tell();
    }

    /// The daemon is given a request of the roll-forward: how long it takes for these is told
    /// apart.
    pub(crate) fn forwarded(&self) {
        self.state.forwarded.store(now(), Relaxed);
    }

    /// It has answered a request of belay's own.
    pub(crate) fn answered(&self) {
        let since = self.state.forwarded.swap(0, Relaxed);
        if since != 0 {
            let took = now().saturating_sub(since);
            self.shim.control().count(Counter::RolledForwardDaemon, took);
        }
    }
}
