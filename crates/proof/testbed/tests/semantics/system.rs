//! The few system calls that only C has: byte-range locks and memory maps.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// What kind of byte-range lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Owned by the process; fails where another holds it.
    Posix,
    /// Owned by the process; waits.
    PosixWait,
    /// Owned by the open file; fails where another holds it.
    Ofd,
}

/// Takes (or with `F_UNLCK` gives back) a lock on bytes `start..start + len`.
pub fn lock(file: &File, how: How, kind: i32, start: i64, len: i64) -> io::Result<()> {
    let command = match how {
        How::Posix => libc::F_SETLK,
        How::PosixWait => libc::F_SETLKW,
        How::Ofd => libc::F_OFD_SETLK,
    };
    let flock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `flock` lives through the call, which only reads it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const flock) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A shared, writable map of a file's first bytes.
pub struct Map {
    start: *mut u8,
    len: usize,
}

// SAFETY: the map is plain memory that stays until it is dropped; accesses are volatile byte accesses.
unsafe impl Send for Map {}
// SAFETY: see above; tests do not write the same byte from two threads.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `len` bytes.
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new map at a place that the kernel chooses.
        let start =
            unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
        Ok(Self { start: start.cast(), len })
    }

    /// One byte.
    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        let place = self.start.wrapping_add(at);
        // SAFETY: inside the map, which lives as long as `self`.
        unsafe { place.read_volatile() }
    }

    /// Sets one byte.
    pub fn set(&self, at: usize, value: u8) {
        assert!(at < self.len);
        let place = self.start.wrapping_add(at);
        // SAFETY: inside the map, which lives as long as `self` and is writable.
        unsafe { place.write_volatile(value) }
    }

    /// Writes all back.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly the map.
        unsafe { msync(self.start.cast(), self.len, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the map, which nobody can use any more.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}
