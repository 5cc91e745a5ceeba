//! What was taken for a daemon before it reads.

use belay_oplog::InPlace;
use std::collections::VecDeque;

/// What was taken.
#[derive(Debug, Default)]
pub(super) struct Stash {
    pub(super) messages: VecDeque<(Vec<u8>, InPlace)>,
    /// A buffer for the next.
    pub(super) spare: Vec<u8>,
}
