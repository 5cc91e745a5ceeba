//! Whether a checkpoint is due. That is decided here; whether one is made on the way of a
//! roll-forward, which has a pace of its own, in [`super::Epoch::look`].
//!
//! It is, for each of these reasons:
//!
//! - much has collected in the overlay or in the op-log, or less, and a checkpoint costs little now
//!   ([`super::pace`]);
//! - the supervisor has asked for one: by its timer, or for a user;
//! - this life has begun with a roll-forward, which the next life is not to begin with as well;
//! - the session has somebody waiting for one (fsync, a request that the op-log has no room for).
//!
//! Whether it can begin, too, is another question: the epoch before must be on the image, and the
//! session must be ready.

use belay_memory::Memory;
use belay_oplog::Sizes;
use belay_recorder::Control;
use belay_recorder::control::CheckpointSettings;
use belay_session::Session;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What is known of the reasons.
#[derive(Debug, Default)]
pub(super) struct Due {
    wishes: CheckpointSettings,
    /// One of those that last until a checkpoint is begun was seen.
    seen: AtomicBool,
    /// How many of the checkpoints that the supervisor asked for were begun.
    begun: AtomicU64,
}

impl Due {
    /// What was asked for before this life is not done in it; what is needed still is asked for
    /// again.
    pub(super) fn new<M: Memory>(control: &Control<'_, M>) -> Self {
        Self {
            wishes: control.checkpoint_settings(),
            seen: AtomicBool::new(false),
            begun: AtomicU64::new(control.checkpoints_asked()),
        }
    }

    /// Bytes that an epoch can have in the overlay.
    pub(super) fn overlay_bytes(&self) -> u64 {
        self.wishes.overlay_bytes
    }

    /// So many bytes are in the overlay. `is_cheap`: whether a checkpoint costs little now.
    #[inline]
    pub(super) fn overlay_has(&self, bytes: u64, is_cheap: impl FnOnce() -> bool) {
        let CheckpointSettings { dirty_bytes, early_bytes, .. } = self.wishes;
        if bytes > dirty_bytes || bytes > early_bytes && early_bytes > 0 && is_cheap() {
            self.seen.store(true, Relaxed);
        }
    }

    /// The op-log of `session` is of that size.
    #[inline]
    pub(super) fn log_has<M: Memory>(
        &self,
        session: &Session<M>,
        sizes: Option<Sizes>,
        is_cheap: impl FnOnce() -> bool,
    ) {
        let early = self.wishes.early_bytes;
        // A record takes longer to be done again than as many bytes of data.
        let is_much =
            |sizes: Sizes| sizes.record_bytes as u64 > early / 8 || sizes.data_bytes as u64 > early;
        let is_early = || early > 0 && sizes.is_some_and(is_much) && is_cheap();
        if session.is_log_long(self.wishes.log_bytes) || is_early() {
            self.seen.store(true, Relaxed);
        }
    }

    /// What is in the op-log is done again in this life.
    pub(super) fn rolls_forward(&self) {
        self.seen.store(true, Relaxed);
    }

    /// Whether a reason was seen that lasts until a checkpoint is begun.
    #[inline]
    pub(super) fn is_seen(&self) -> bool {
        self.seen.load(Relaxed)
    }

    /// Whether the supervisor has asked for one that was not begun.
    #[inline]
    pub(super) fn is_asked<M: Memory>(&self, control: &Control<'_, M>) -> bool {
        control.checkpoints_asked() != self.begun.load(Relaxed)
    }

    /// Whether a checkpoint is due, for whatever reason.
    pub(super) fn is_due<M: Memory>(&self, session: &Session<M>) -> bool {
        self.is_seen()
            || self.is_asked(&session.control())
            || session.is_log_long(self.wishes.log_bytes)
            || session.wants_checkpoint()
    }

    /// One was begun that has what the supervisor had asked for `asked` times.
    pub(super) fn begun(&self, asked: u64) {
        self.begun.store(asked, Relaxed);
        self.seen.store(false, Relaxed);
    }

    /// One has ended that has what the supervisor had asked for `asked` times by then.
    pub(super) fn sealed(&self, asked: u64) {
        self.begun.store(asked, Relaxed);
    }
}
