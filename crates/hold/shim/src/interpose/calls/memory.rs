//! The daemon's memory, as its arguments to a call name it.

use libc::{c_char, c_int, c_void, iovec};
use std::ffi::CStr;

/// The bytes of a C string of the daemon's; none of a null pointer.
pub(in crate::interpose) fn bytes<'a>(string: *const c_char) -> &'a [u8] {
    if string.is_null() {
        return &[];
    }
    // SAFETY: the daemon's argument to a call that takes a NUL-terminated string, readable until
    // that call returns; nobody keeps it longer.
    unsafe { CStr::from_ptr(string) }.to_bytes()
}

/// The memory of an iovec of the daemon's.
pub(super) fn part<'a>(part: &iovec) -> &'a [u8] {
    slice(part.iov_base, part.iov_len)
}

/// Memory of the daemon's that a call reads.
pub(super) fn slice<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if at.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the daemon's argument to a call that reads `len` bytes there until it returns.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }
}

/// Memory of the daemon's that a call has filled.
pub(super) fn filled<'a>(at: *mut c_void, len: usize) -> &'a mut [u8] {
    if at.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the daemon's argument to a read, which may write `len` bytes there until it returns;
    // its thread waits for us.
    unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) }
}

/// The iovecs of a call.
pub(in crate::interpose) fn parts<'a>(iov: *const iovec, count: c_int) -> &'a [iovec] {
    let count = usize::try_from(count).unwrap_or(0);
    if iov.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the daemon's argument to a vectored call: `count` iovecs, readable until it returns.
    unsafe { std::slice::from_raw_parts(iov, count) }
}
