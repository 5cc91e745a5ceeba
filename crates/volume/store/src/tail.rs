//! The end of the intent log ([`crate::intent`]).

use crate::pointer::Checksum;

/// Where the next append goes.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Blocks that are written.
    pub used: u64,
    /// The checksum of the last one.
    pub before: Checksum,
}
