//! Numbers of descriptors that come to mean something else: who has to know when one is closed, or
//! becomes a duplicate.

use crate::descriptors::{
    self, DESCRIPTORS, add, add_image, forget_sink, has_own_memory, is_device, is_image, is_known,
    is_set,
};
use crate::interpose::second;
use crate::positions;
use crate::shim::{Shim, shim};
use crate::waiting;

/// Notes that `fd` is being closed or given another meaning.
#[inline]
pub(crate) fn remove(fd: i32) {
    if is_known(fd) {
        remove_known(fd);
    }
    forget_sink(fd);
}

#[cold]
fn remove_known(fd: i32) {
    if !has_own_memory() {
        return;
    }
    if is_device(fd) || is_set(fd) {
        waiting::closing(fd);
    }
    second::closing(fd);
    if is_image(fd) {
        if let Some(transaction) = shim().and_then(Shim::transaction) {
            transaction.closed(fd);
        }
        positions::forget(fd); // only the image's are kept
    }
    descriptors::forget(fd);
}

/// Notes that `to` has become a duplicate of `from`.
pub(crate) fn duplicate(from: i32, to: i32) {
    remove(to);
    if !(is_device(from) || is_image(from) || is_set(from)) || !has_own_memory() {
        return;
    }
    if is_device(from) {
        add(to);
    }
    if is_image(from) {
        positions::hand_back(from); // they have one
        add_image(to);
    }
    if is_set(from)
        && let Some(shim) = shim()
    {
        shim.set_duplicated(from, to);
    }
}

/// Notes that all from `first` to `last` are being closed.
pub(crate) fn remove_range(first: u32, last: u32) {
    if !has_own_memory() {
        return;
    }
    let end = last.saturating_add(1).min(DESCRIPTORS as u32);
    for fd in first..end {
        remove(fd as i32);
    }
}
