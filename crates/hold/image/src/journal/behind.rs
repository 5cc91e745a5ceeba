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
    /// The device (dm, md) that has some of this, nobody but the kernel knows which; 0 if that is
    /// known.
    #[serde(default)]
    pub through: u64,
}

impl Behind {
    /// Whether a write to the one may be a write to the other. Two devices that are made of one
    /// have each their own part of it: so whoever manages volumes makes them.
    pub fn overlaps(&self, other: &Self) -> bool {
        let end = |one: &Self| one.start.saturating_add(one.length.max(1));
        let apart = self.through != other.through && self.through != 0 && other.through != 0;
        (self.device, self.inode) == (other.device, other.inode)
            && !apart
            && self.start < end(other)
            && other.start < end(self)
    }
}
