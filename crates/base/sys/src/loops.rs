//! Loop devices.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// `LOOP_GET_STATUS64` of linux/loop.h.
const GET_STATUS: u64 = 0x4c05;
/// Words of 8 bytes that `struct loop_info64` has.
const WORDS: usize = 29;

/// What the kernel says of the file behind a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopFile {
    /// The number of the device that the file is on.
    pub device: u64,
    /// Its inode number there.
    pub inode: u64,
    /// Where in it the loop device begins, in bytes.
    pub offset: u64,
}

/// The file behind a loop device.
///
/// # Errors
/// Those of ioctl(2): `ENOTTY` or `EINVAL` of what is no loop device, `ENXIO` of one without a
/// file.
pub fn loop_file(device: BorrowedFd<'_>) -> io::Result<LoopFile> {
    let mut info = [0_u64; WORDS];
    // SAFETY: a live descriptor, and memory of the size and alignment of the structure, which this
    // kind of call fills; of what is no loop device it is refused.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS as _, info.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(LoopFile { device: info[0], inode: info[1], offset: info[3] })
}
