//! What the policy `epoch` keeps in the daemon's process.

use super::ahead::Ahead;
use super::due::Due;
use super::pace::Pace;
use belay_memory::Memory;
use belay_recorder::Control;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// All that the policy keeps.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// Held shared by those who read the image, and alone by those who change what it is.
    pub(super) overlay: RwLock<()>,
    /// The last epoch of which it is known here that it is on the image.
    pub(super) committed: AtomicU64,
    /// How many of the supervisor's declarations that fsync fails have been heard.
    pub(super) syncs_failed: AtomicU64,
    /// Whether a checkpoint is due.
    pub(super) due: Due,
    /// How long checkpoints hold requests up.
    pub(super) pace: Pace,
    /// Which memory is wanted next.
    pub(super) ahead: Ahead,
    /// The daemon has opened its image in this life.
    pub(super) opened: AtomicBool,
    /// When the kernel first said that the mount is gone; 0: not yet.
    pub(super) ending: AtomicU64,
    /// How often a last checkpoint was begun.
    pub(super) last_tries: AtomicU32,
    /// The daemon was told to end by the kernel itself, and is not asked for anything any more.
    pub(super) destroyed: AtomicBool,
    /// When the daemon was given what it is just working on for the roll-forward; 0 for nothing.
    pub(super) forwarded: AtomicU64,
    /// How many wishes for memory were fulfilled.
    pub(super) trimmed: AtomicU64,
}

impl Epochs {
    /// What was asked for before this life is not done in it; what is needed still is asked for
    /// again.
    pub(crate) fn new<M: Memory>(control: &Control<'_, M>) -> Self {
        Self {
            due: Due::new(control),
            trimmed: AtomicU64::new(control.trims_asked()),
            syncs_failed: AtomicU64::new(control.syncs_failed()),
            ..Self::default()
        }
    }
}
