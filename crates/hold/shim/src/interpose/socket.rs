//! recvmsg: how an ordinary user's daemon gets the device.

use crate::real;
use crate::shim::{Shim, shim};
use libc::{c_int, msghdr, ssize_t};

/// Descriptors that are looked at in one message; the kernel allows 253.
const MOST: usize = 253;

/// recvmsg(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    let received = unsafe { real::recvmsg(fd, message, flags) };
    // A daemon gets the device before it can serve. What it receives later is its own affair; but
    // that it has another mount is told.
    if received >= 0
        && let Some(shim) = shim()
    {
        // SAFETY: recvmsg(2) has just filled the message, which is the caller's until it returns.
        unsafe { look_at(shim, message) };
    }
    received
}

/// Looks for the device among what was received.
///
/// # Safety
/// `message` was filled by a successful recvmsg(2) and is not in use by anybody else.
unsafe fn look_at(shim: &Shim, message: *const msghdr) {
    // SAFETY: a valid message header by the contract; a header is given only if it fits.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so it lies whole within the control buffer that the kernel filled.
        let part = unsafe { *header };
        if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic only.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (part.cmsg_len.saturating_sub(head) / size_of::<c_int>()).min(MOST);
            // SAFETY: the data follows the header, within the buffer.
            let data = unsafe { libc::CMSG_DATA(header) };
            for number in 0..count {
                let place = data.cast::<c_int>().wrapping_add(number);
                // SAFETY: `count` descriptors lie there, by the header's length; perhaps not
                // aligned.
                let fd = unsafe { place.read_unaligned() };
                shim.received(fd);
            }
        }
        // SAFETY: `header` is one of this message's; null comes after the last.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
}
