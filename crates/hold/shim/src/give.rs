//! What the shim gives the daemon as the result of its read(2) of the device.

use crate::argument::Output;
use crate::real;
use belay_oplog::InPlace;
use belay_sys::Mapping;
use std::sync::Arc;

/// Copies a message into the daemon's buffer, as read(2) would.
pub(crate) fn give(message: &[u8], buffer: &mut Output<'_>) -> isize {
    if message.len() > buffer.bytes().len() {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    buffer.put(message) as isize
}

/// The same of a message whose data, behind its `head`, are in the op-log: with 40 MB to be written
/// again each copy of them is milliseconds.
pub(crate) fn give_with(
    head: &[u8],
    (data, log): (&InPlace, &Arc<Mapping>),
    buffer: &mut Output<'_>,
) -> isize {
    if data.is_empty() {
        return give(head, buffer);
    }
    if head.len().saturating_add(data.len()) > buffer.bytes().len() {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    let given = give(head, buffer);
    let both = buffer.filled(head.len() + data.len());
    let place = both.get_mut(head.len()..).unwrap_or(&mut []);
    data.copy_to(log, place);
    given + place.len() as isize
}
