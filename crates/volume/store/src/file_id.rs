//! The numbers of physical files.

use std::fmt;

/// The number of a physical file: which inode it has, and the how manieth file with that inode it
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u64);

impl FileId {
    pub(crate) const INODE_BITS: u32 = 40;
    pub(crate) const GENERATIONS: u32 = 1 << 24;

    pub(crate) fn new(inode: u64, generation: u32) -> Self {
        Self(u64::from(generation) << Self::INODE_BITS | inode)
    }

    /// As a number, which can be stored.
    pub fn number(self) -> u64 {
        self.0
    }

    /// What was stored.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn inode(self) -> u64 {
        self.0 & ((1 << Self::INODE_BITS) - 1)
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> Self::INODE_BITS) as u32
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.inode(), self.generation())
    }
}
