//! What can be done to an object.

use crate::id::ObjectId;
use zerocopy::little_endian::U64;

/// How the data of an object are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The metadata of a layer, which must always find room when it is changed.
    Metadata,
    /// The data of users.
    Data,
}

/// An operation that changes an object. Reads are no operations: they change nothing, and nothing
/// of them is put on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<'d> {
    /// Makes an empty object. There is none with that number.
    Create {
        /// Its number.
        object: ObjectId,
        /// How its data are kept.
        class: Class,
        /// Its attributes.
        attributes: &'d [u8],
    },
    /// Removes an object.
    Delete {
        /// Which one.
        object: ObjectId,
    },
    /// Writes whole pages. The length is not changed.
    Write {
        /// Of which object.
        object: ObjectId,
        /// The first page.
        page: u64,
        /// Whole pages.
        data: &'d [u8],
    },
    /// The same, with the pages elsewhere: in frames of the cache.
    Pages {
        /// Of which object.
        object: ObjectId,
        /// The first page.
        page: u64,
        /// For each page, the frame and which content of it.
        frames: &'d [U64],
    },
    /// Changes the length. What is behind it is gone: it is zeros if the object becomes longer
    /// again.
    SetSize {
        /// Of which object.
        object: ObjectId,
        /// The length in bytes.
        size: u64,
    },
    /// Replaces the attributes.
    SetAttributes {
        /// Of which object.
        object: ObjectId,
        /// Its attributes.
        attributes: &'d [u8],
    },
    /// Makes zeros of whole pages.
    Punch {
        /// Of which object.
        object: ObjectId,
        /// The first page.
        page: u64,
        /// How many.
        count: u64,
    },
    /// Changes nothing: whoever makes the transaction durable without data makes those of this
    /// object durable with it, as it replaces another one's.
    Keep {
        /// Which object.
        object: ObjectId,
    },
}

impl Operation<'_> {
    /// Which object it changes.
    pub fn object(&self) -> ObjectId {
        match *self {
            Self::Create { object, .. }
            | Self::Delete { object }
            | Self::Write { object, .. }
            | Self::Pages { object, .. }
            | Self::SetSize { object, .. }
            | Self::SetAttributes { object, .. }
            | Self::Punch { object, .. }
            | Self::Keep { object } => object,
        }
    }

    /// Whether it cannot be undone: it takes away what is not on record (namespace transactions
    /// III-C).
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Delete { .. } | Self::SetSize { .. } | Self::Punch { .. })
    }
}
