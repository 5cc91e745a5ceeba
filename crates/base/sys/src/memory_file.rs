//! Memory files.

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, Result};

/// Makes an empty memory file that can be sealed, and that nobody is to start: where
/// `vm.memfd_noexec` is 2, no other can be had.
///
/// # Errors
/// Those of memfd_create(2).
pub fn sealable_memory_file(name: &str) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, flags), // before Linux 6.3
        made => made,
    }
}
