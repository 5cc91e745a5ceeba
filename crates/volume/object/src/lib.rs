//! Objects, as the layers of a volume speak of them (Loris II; namespace transactions III).
//!
//! | module | answers |
//! | --- | --- |
//! | [`operation`] | what can be done to an object |
//! | [`lower`] | what a layer asks of the one below it |
//! | [`transaction`] | which operations happen together, and how they are written down |
//!
//! An object has a number, a length, pages and a small set of attributes. What is written is whole pages: what is in a page beside the
//! bytes that change is read before. Pages that were never written are zeros.

#![forbid(unsafe_code)]

pub mod lower;
pub mod operation;
pub mod transaction;

pub use lower::{Attributes, Lower};
pub use operation::{Class, Operation};
pub use transaction::{Transaction, Undecodable};

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
