//! A client that reads or writes a file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, Mode, OFlags};

use super::Access;
use crate::clients::Worker;

/// Size of the file that a client works on.
const FILE_SIZE: usize = 16 << 20;

/// What `O_DIRECT` may ask of a buffer's address.
const ALIGNMENT: usize = 4096;

/// A buffer whose content starts at a multiple of [`ALIGNMENT`].
pub struct AlignedBuffer {
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` bytes, all equal to `fill`.
    pub fn new(len: usize, fill: u8) -> Self {
        let storage = vec![fill; len + ALIGNMENT];
        let start = storage.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { storage, start, len }
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }

    /// The content, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

/// A buffer that the clients of both sides of a pair use in turn.
///
/// With a buffer of its own each, one side's may lie better in memory, and the side that got its
/// buffer first was seen to be 5 % slower throughout.
pub type SharedBuffer = Arc<Mutex<AlignedBuffer>>;

/// The largest block of any operation.
pub const LARGEST_BLOCK: usize = 1 << 20;

/// Reads or writes the blocks of one file, over and over.
///
/// A reader opens the file anew for each pass over it: unless the daemon asks otherwise, the kernel
/// then drops the pages that it has cached, so every pass reaches the daemon. Random readers turn
/// read-ahead off.
pub struct Transfer {
    path: PathBuf,
    access: Access,
    file: Option<OwnedFd>,
    offsets: Vec<u64>,
    next: usize,
    buffer: SharedBuffer,
}

impl Transfer {
    /// A client of the file at `path`, which is made and filled where it is missing or short.
    pub fn new(path: &Path, access: Access, buffer: SharedBuffer) -> Result<Self> {
        let existing = path.metadata().map(|m| m.len()).unwrap_or(0);
        if existing < FILE_SIZE as u64 {
            std::fs::write(path, vec![0x5a; FILE_SIZE])
                .with_context(|| format!("fill {}", path.display()))?;
        }
        let mut offsets: Vec<u64> = (0..FILE_SIZE as u64).step_by(access.block).collect();
        if access.random {
            // A fixed seed: both sides of a pair visit the blocks in the same order.
            offsets.shuffle(&mut StdRng::seed_from_u64(access.block as u64));
        }
        ensure!(access.block <= LARGEST_BLOCK, "blocks of {} bytes are too large", access.block);
        Ok(Self { path: path.to_owned(), access, file: None, offsets, next: 0, buffer })
    }

    fn reopen(&mut self) -> Result<()> {
        self.file = None;
        let mut flags =
            OFlags::CLOEXEC | if self.access.write { OFlags::WRONLY } else { OFlags::RDONLY };
        flags.set(OFlags::DIRECT, self.access.direct);
        let file = rustix::fs::open(&self.path, flags, Mode::empty())
            .with_context(|| format!("open {} with {flags:?}", self.path.display()))?;
        if self.access.random {
            rustix::fs::fadvise(&file, 0, None, Advice::Random).context("turn read-ahead off")?;
        }
        self.file = Some(file);
        self.next = 0;
        Ok(())
    }
}

impl Worker for Transfer {
    fn prepare(&mut self, _count: u64) -> Result<()> {
        self.reopen()
    }

    fn run(&mut self, count: u64) -> Result<()> {
        let shared = Arc::clone(&self.buffer);
        let mut buffer = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let block = self.access.block;
        for _ in 0..count {
            if self.next == self.offsets.len() {
                self.next = 0;
                if !self.access.write {
                    self.reopen()?;
                }
            }
            let offset = self.offsets[self.next];
            self.next += 1;
            let file = self.file.as_ref().context("the file was not opened")?;
            let moved = if self.access.write {
                rustix::io::pwrite(file, &buffer.bytes()[..block], offset)
            } else {
                rustix::io::pread(file, &mut buffer.bytes_mut()[..block], offset)
            }
            .with_context(|| format!("{:?} at {offset} of {}", self.access, self.path.display()))?;
            ensure!(moved == block, "{moved} bytes instead of {} at {offset}", self.access.block);
        }
        Ok(())
    }

    fn finish(&mut self, _count: u64) -> Result<()> {
        self.file = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_filled() {
        for len in [4096, 128 << 10, 1 << 20] {
            let mut buffer = AlignedBuffer::new(len, 7);
            assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(buffer.bytes().len(), len);
            assert!(buffer.bytes_mut().iter().all(|b| *b == 7));
        }
    }
}
