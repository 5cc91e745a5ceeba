//! What a file store keeps its blocks on.
//!
//! | module | answers |
//! | --- | --- |
//! | [`mod@file`] | how an image file or a block device is one |
//! | [`shadow`] | how a disk is looked at without being written to |
//!
//! A disk is an array of blocks of [`BLOCK`] bytes. A write that has returned is durable after the
//! next [`Disk::flush`] that has returned. Before that a power failure may leave any part of it, in
//! units of sectors, in any order.

#![forbid(unsafe_code)]

mod file;
mod shadow;

pub use file::{FileDisk, OpenError, Whereabouts};
pub use shadow::Shadow;

use std::io;
use std::ops::Deref;

/// The size of a block in bytes.
pub const BLOCK: usize = 4096;

/// The content of a block.
pub type Block = [u8; BLOCK];

/// A block of zeros, which is what a file reads as where nothing was written.
pub const ZEROS: Block = [0; BLOCK];

/// An array of blocks. The one process that has it open is the only one that changes it.
///
/// What a disk gives is not to be trusted: it may be another block, an old one, or wrong in any
/// bit. A file store checks all of it.
pub trait Disk {
    /// The number of blocks.
    fn blocks(&self) -> u64;

    /// Reads whole blocks from block `first` on; the length of `out` is a multiple of [`BLOCK`].
    ///
    /// # Errors
    /// Those of the device; `InvalidInput` for blocks behind the end.
    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes whole blocks from block `first` on; the length of `data` is a multiple of [`BLOCK`].
    ///
    /// # Errors
    /// Those of the device; `InvalidInput` for blocks behind the end. Nothing is known then of what
    /// the blocks hold.
    fn write(&self, first: u64, data: &[u8]) -> io::Result<()>;

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// Those of the device. What of the writes before is durable is not known then, and a later
    /// flush does not tell.
    fn flush(&self) -> io::Result<()>;
}

/// Whatever leads to a disk.
impl<P: Deref<Target: Disk>> Disk for P {
    fn blocks(&self) -> u64 {
        (**self).blocks()
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read(first, out)
    }

    fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
        (**self).write(first, data)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}

/// Checks that so many bytes from block `first` on are whole blocks of a disk with that many.
///
/// # Errors
/// `InvalidInput` otherwise.
pub fn check_range(blocks: u64, first: u64, bytes: usize) -> io::Result<()> {
    let count = (bytes / BLOCK) as u64;
    let inside = first.checked_add(count).is_some_and(|end| end <= blocks);
    match inside && bytes.is_multiple_of(BLOCK) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{bytes} bytes from block {first} on, of {blocks} blocks"),
        )),
    }
}
