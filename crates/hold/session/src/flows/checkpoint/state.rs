//! What waits for a checkpoint.

use belay_wire::{Opcode, OpcodeSet};

/// Requests by which an application asks for what it wrote to be safe.
pub(crate) const SYNCS: OpcodeSet =
    OpcodeSet::new(&[Opcode::FSYNC, Opcode::FSYNCDIR, Opcode::SYNCFS]);

/// What of a checkpoint a request waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// That there is one, or that a file is stored: which makes room in the op-log.
    pub(crate) for_room: bool,
    /// That this epoch is safe.
    pub(crate) for_epoch: Option<u64>,
}
