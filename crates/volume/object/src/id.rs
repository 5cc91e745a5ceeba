//! What an object is called, and how large its parts are.

use std::fmt;

/// The size of a page in bytes.
pub const PAGE: usize = 4096;

/// Bytes of attributes that an object can have.
pub const ATTRIBUTES: usize = 160;

/// The number of an object. The namespace module chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {}", self.0)
    }
}
