//! Loop devices.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// `LOOP_GET_STATUS64` of linux/loop.h.
const GET_STATUS: u64 = 0x4c05;
/// Words of 8 bytes that `struct loop_info64` has.
const WORDS: usize = 29;

/// Device and inode number of the file behind a loop device.
///
/// # Errors
/// Those of ioctl(2): `ENOTTY` or `EINVAL` of what is no loop device, `ENXIO` of one without a file.
pub fn loop_file(device: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let mut info = [0_u64; WORDS];
    // SAFETY: a live descriptor, and memory of the size and alignment of the structure, which this kind of call fills; of
    // what is no loop device it is refused.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS as _, info.as_mut_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok((info[0], info[1])) }
}
