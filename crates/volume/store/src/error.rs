//! Why a store cannot do what it was asked for.

use crate::file_id::FileId;
use std::io;
use thiserror::Error;

/// Why a store cannot do what it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// The disk failed.
    #[error("cannot {what} block {block} of the disk: {why}")]
    Disk {
        /// `read`, `write` or `flush`.
        what: &'static str,
        /// The first block.
        block: u64,
        /// What the device said.
        why: io::Error,
    },
    /// A block is not what its checksum says.
    #[error("{what} in block {block} does not match its checksum")]
    Corrupt {
        /// What the block should hold.
        what: &'static str,
        /// Where it is.
        block: u64,
    },
    /// A block that led to it was damaged, and was replaced since.
    #[error("{what} is lost: block {block} of the disk led to it, and was damaged")]
    Lost {
        /// What was there.
        what: &'static str,
        /// What led to it.
        block: u64,
    },
    /// A block matches its checksum and makes no sense: whoever wrote it was wrong.
    #[error("{what} is wrong: {why}")]
    Damaged {
        /// What makes no sense.
        what: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// What was to be done again is not, or may not be, all there.
    #[error(
        "the intent log is damaged in block {block} of the disk ({why}): what was synced after the last checkpoint may be lost from there on"
    )]
    Intents {
        /// Where it is.
        block: u64,
        /// What is wrong with it.
        why: String,
    },
    /// There is no room.
    #[error("no room is left on the disk")]
    NoSpace,
    /// There is no such file.
    #[error("there is no physical file {0}")]
    NoFile(FileId),
    /// More than a file can hold.
    #[error("a physical file cannot be that long")]
    TooLarge,
    /// What is on the disk is no store, or none that can be used.
    #[error("{0}")]
    NoStore(String),
    /// It is not known what was overwritten in place before the last end.
    #[error(
        "what was overwritten before the last end cannot be told yet, and nothing is changed until then: {0}; that is tried again when \
         the store is opened again"
    )]
    Unresolved(String),
    /// An earlier change failed half way.
    #[error("an earlier change failed: {0}")]
    Failed(String),
}

impl Error {
    /// Whether it is of one block that cannot be had, and never will be: the others are as good as
    /// before, and what it held is given up where it has to be changed. A disk says of a read error
    /// that it lasts by [`io::ErrorKind::InvalidData`]; any other one may pass.
    pub fn is_unreadable(&self) -> bool {
        match self {
            Self::Disk { what: "read", why, .. } => why.kind() == io::ErrorKind::InvalidData,
            Self::Corrupt { .. } | Self::Lost { .. } => true,
            _ => false,
        }
    }

    /// Whether something could not be read, and may be later.
    pub fn may_pass(&self) -> bool {
        let is_of_a_read = matches!(self, Self::Disk { what: "read", .. } | Self::Unresolved(_));
        is_of_a_read && !self.is_unreadable()
    }

    /// Whether it is of a read, be it that it may succeed later.
    pub fn is_of_a_read(&self) -> bool {
        self.is_unreadable() || self.may_pass()
    }
}

/// What a store answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;
