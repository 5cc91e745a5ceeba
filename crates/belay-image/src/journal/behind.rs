//! What tells whether two images are one.

use serde::{Deserialize, Serialize};

/// What an image is in the end, by whichever path or device: a part of a file, or a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// The number of the device that the file is on; of a disk its own.
    pub device: u64,
    /// The file's inode number; 0 of a disk.
    pub inode: u64,
    /// Where the image begins there, in bytes.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
}

impl Behind {
    /// Whether a write to the one may be a write to the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |one: &Self| one.start.saturating_add(one.length.max(1));
        (self.device, self.inode) == (other.device, other.inode)
            && self.start < end(other)
            && other.start < end(self)
    }
}
