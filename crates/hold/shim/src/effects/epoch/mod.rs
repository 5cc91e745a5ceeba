//! Policy `epoch`: what the daemon writes to its image collects in an overlay until a checkpoint, and what it
//! has answered in an op-log, so that nothing is lost with what it keeps in its own memory (Membrane,
//! section 3.5).
//!
//! | module | answers |
//! | --- | --- |
//! | [`image`] | what becomes of reads and writes of the image |
//! | [`checkpoint`] | when a checkpoint is made, and what is done for it here |
//! | [`pace`] | whether an early checkpoint costs little |
//! | [`ahead`] | which memory is wanted next |
//! | [`trim`] | when memory is given back |
//! | [`clock`] | what the daemon takes for the time |
//! | [`end`] | what is done when the mount is gone |

mod ahead;
mod checkpoint;
pub(crate) mod clock;
mod end;
mod image;
mod pace;
mod trim;

use crate::start::Shim;
use ahead::Ahead;
use belay_image::overlay::{self, Overlay};
use belay_memory::Memory;
use belay_oplog::Oplog;
use belay_recorder::control::{Checkpoints, options};
use belay_recorder::{Capacity, Control};
use belay_sys::Mapping;
use pace::Pace;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

const OVERLAY: overlay::Capacity = overlay::Capacity::MOUNT;
const OPLOG: belay_oplog::Capacity = belay_oplog::Capacity::MOUNT;
const _: () = assert!(
    (OVERLAY.words() + OPLOG.words()) * 8 <= Capacity::MOUNT.epoch_bytes,
    "overlay and op-log have room in the recorder"
);

/// The epochs' part of the shim.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// Held shared by those who read the image, and alone by those who change what it is.
    overlay: RwLock<()>,
    /// How many of the checkpoints that the supervisor asked for were begun.
    asked: AtomicU64,
    /// The last epoch of which it is known here that it is on the image.
    committed: AtomicU64,
    /// How many of the supervisor's declarations that fsync fails have been heard.
    syncs_failed: AtomicU64,
    /// So much has collected that a checkpoint is due.
    due: AtomicBool,
    /// How long checkpoints hold requests up.
    pace: Pace,
    /// Which memory is wanted next.
    ahead: Ahead,
    /// The daemon has opened its image in this life.
    opened: AtomicBool,
    /// When the kernel first said that the mount is gone; 0: not yet.
    ending: AtomicU64,
    /// How often a last checkpoint was begun.
    last_tries: AtomicU32,
    /// The daemon was told to end by the kernel itself, and is not asked for anything any more.
    pub(crate) destroyed: AtomicBool,
    /// When the daemon was given what it is just working on for the roll-forward; 0 for nothing.
    forwarded: AtomicU64,
    /// How many wishes for memory were fulfilled.
    trimmed: AtomicU64,
    /// When checkpoints are due, and how they are made.
    wishes: Checkpoints,
}

impl Epochs {
    /// What was asked for before this life is not done in it; what is needed still is asked for again.
    pub(crate) fn new<M: Memory>(control: &Control<'_, M>) -> Self {
        Self {
            wishes: control.checkpoints(),
            asked: AtomicU64::new(control.checkpoints_asked()),
            trimmed: AtomicU64::new(control.trims_asked()),
            syncs_failed: AtomicU64::new(control.syncs_failed()),
            ..Self::default()
        }
    }

    /// A checkpoint is to be begun.
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Relaxed)
    }
}

impl Shim {
    // Made anew for each call: three numbers that the compiler knows, and one load.
    fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        let overlay = Overlay::new(self.host.memory(), self.host.layout().epochs, OVERLAY);
        overlay.limited(self.epochs.wishes.overlay_bytes)
    }

    /// Opens the op-log for the session.
    ///
    /// # Errors
    /// If it, or the overlay, is damaged: what was acknowledged since the last checkpoint is lost.
    pub(crate) fn begin_epochs(&self, bits: u64) -> Result<(), String> {
        let damaged = |what: &str| {
            format!(
                "what was acknowledged since the last checkpoint is lost: {what}; the image is as it was at the checkpoint"
            )
        };
        self.host.memory().prefer_large(self.host.layout().epochs * 8, Capacity::MOUNT.epoch_bytes);
        let overlay = self.overlay();
        let epoch = overlay.epoch().map_err(|why| damaged(&why.to_string()))?;
        let committed = overlay.committed().map_err(|why| damaged(&why.to_string()))?;
        if bits & options::READ_ONLY != 0 {
            let mut session = self.host.session();
            session.set_epochs(epoch, committed);
            session.keep_no_log();
            return Ok(());
        }
        let at = self.host.layout().epochs + OVERLAY.words();
        let log = Oplog::open(Arc::clone(self.host.memory()), at, OPLOG, epoch)
            .map_err(|why| damaged(&why.to_string()))?;
        // What is issued again now would be the next time as well: who crashes often would not get on.
        // Without an image a checkpoint is a restart, or cannot be.
        let soon = log.sizes().records > 0 && bits & options::BUFFER == 0;
        self.epochs.due.store(soon, Relaxed);
        let mut session = self.host.session();
        session.set_epochs(epoch, committed);
        session.keep_log(log).map_err(|why| damaged(&why.to_string()))
    }
}
