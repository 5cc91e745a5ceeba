//! What the shim gives the daemon as the result of its read(2) of the device.

use crate::real;
use belay_oplog::InPlace;
use belay_sys::Mapping;
use std::sync::Arc;

/// Copies a message into the daemon's buffer, as read(2) would.
pub(crate) fn give(message: &[u8], buffer: *mut u8, len: usize) -> isize {
    if message.len() > len {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the daemon's buffer has `len` bytes, the message fits (just checked), and the two
    // do not overlap: the message is the shim's own.
    unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), buffer, message.len()) };
    message.len() as isize
}

/// The same of a message whose data, behind its `head`, are in the op-log: with 40 MB to be written again each copy of them
/// is milliseconds.
pub(crate) fn give_with(
    head: &[u8],
    (data, log): (&InPlace, &Arc<Mapping>),
    buffer: *mut u8,
    len: usize,
) -> isize {
    if data.is_empty() {
        return give(head, buffer, len);
    }
    if head.len().saturating_add(data.len()) > len {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    let given = give(head, buffer, len);
    let place = buffer.wrapping_add(head.len());
    // SAFETY: the daemon's buffer has `len` bytes, and behind the head room for the data (just checked). It is the calling
    // thread's alone until read(2) returns to it, and it is no part of the recorder. It is memory of foreign code, which the
    // compiler has not seen being left unwritten; nothing is read from it.
    let place = unsafe { std::slice::from_raw_parts_mut(place, data.len()) };
    data.copy_to(log, place);
    given + data.len() as isize
}
