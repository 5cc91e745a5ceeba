//! Policy `epoch`: what the daemon writes to its image collects in an overlay until a checkpoint,
//! and what it has answered in an op-log, so that nothing is lost with what it keeps in its own
//! memory (Membrane, section 3.5).
//!
//! | module | answers |
//! | --- | --- |
//! | [`overlaid`] | what becomes of reads and writes of the image |
//! | [`checkpoint`] | when a checkpoint begins, and what is done for it here |
//! | [`due`] | whether one is due |
//! | [`pace`] | whether an early checkpoint costs little |
//! | [`state`] | what is kept for all of that |
//! | [`ahead`] | which memory is wanted next |
//! | [`trim`] | when memory is given back |
//! | [`clock`] | what the daemon takes for the time |
//! | [`end`] | what is done when the mount is gone |

mod ahead;
mod checkpoint;
pub(crate) mod clock;
mod due;
mod end;
mod overlaid;
mod pace;
pub(crate) mod state;
mod trim;

use super::policy::Policy;
use crate::shim::Shim;
use belay_image::overlay::{self, Overlay};
use belay_oplog::Oplog;
use belay_recorder::Capacity;
use belay_recorder::control::Options;
use belay_sys::Mapping;
use state::Epochs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const OVERLAY: overlay::Capacity = overlay::Capacity::MOUNT;
const OPLOG: belay_oplog::Capacity = belay_oplog::Capacity::MOUNT;
const _: () = assert!(
    (OVERLAY.words() + OPLOG.words()) * 8 <= Capacity::MOUNT.epoch_bytes,
    "overlay and op-log have room in the recorder"
);

/// The policy `epoch` at work, of a daemon that has it.
#[derive(Clone, Copy)]
pub(crate) struct Epoch<'s> {
    shim: &'s Shim,
    state: &'s Epochs,
}

impl Shim {
    /// The policy `epoch`, if that is the daemon's.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<Epoch<'_>> {
        match &self.policy {
            Policy::Epoch(state) => Some(Epoch { shim: self, state }),
            _ => None,
        }
    }
}

impl Epoch<'_> {
    /// Whether a checkpoint is to be begun.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.state.due.is_seen()
    }

    /// The kernel has told the daemon to end: it is not asked for anything any more.
    pub(crate) fn destroyed(&self) {
        self.state.destroyed.store(true, Relaxed);
    }

    // Made anew for each call: three numbers that the compiler knows, and one load.
    fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        let overlay =
            Overlay::new(self.shim.host.memory(), self.shim.host.layout().epochs, OVERLAY);
        overlay.limited(self.state.due.overlay_bytes())
    }

    /// Opens the op-log for the session.
    ///
    /// # Errors
    /// If it, or the overlay, is damaged: what was acknowledged since the last checkpoint is lost.
    pub(crate) fn open(&self, options: Options) -> Result<(), String> {
        let damaged = |what: &str| {
            format!(
                "what was acknowledged since the last checkpoint is lost: {what}; the image is as it was at the checkpoint"
            )
        };
        self.shim
            .host
            .memory()
            .prefer_large(self.shim.host.layout().epochs * 8, Capacity::MOUNT.epoch_bytes);
        let overlay = self.overlay();
        let epoch = overlay.epoch().map_err(|why| damaged(&why.to_string()))?;
        let committed = overlay.committed().map_err(|why| damaged(&why.to_string()))?;
        if options.contains(Options::READ_ONLY) {
            let mut session = self.shim.host.session();
            session.set_epochs(epoch, committed);
            session.keep_no_log();
            return Ok(());
        }
        let at = self.shim.host.layout().epochs + OVERLAY.words();
        let log = Oplog::open(Arc::clone(self.shim.host.memory()), at, OPLOG, epoch)
            .map_err(|why| damaged(&why.to_string()))?;
        // What is reissued now would be the next time as well: who crashes often would not get on.
        // Without an image a checkpoint is a restart, or cannot be.
        if log.sizes().records > 0 && !options.contains(Options::BUFFER) {
            self.state.due.rolls_forward();
        }
        let mut session = self.shim.host.session();
        session.set_epochs(epoch, committed);
        session.keep_log(log).map_err(|why| damaged(&why.to_string()))
    }
}
