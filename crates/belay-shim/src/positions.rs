//! Where the daemon's descriptors of its image stand.
//!
//! What is read and written there at a descriptor's position goes by an offset, so the kernel would have to be asked for
//! the position before each call and told the new one after it. It is kept here instead, and a daemon that seeks and
//! reads, as fusefat does for each entry of a directory, needs no system call for what lies in the overlay. As soon as
//! somebody else may use the same open file (a duplicate, a child, a copy within the kernel), the position is handed back
//! to the kernel, and stays there.

use crate::descriptors::{DESCRIPTORS, image_numbers};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// For each descriptor its position and 1; 0 if the kernel has it.
static POSITIONS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

#[inline]
fn place(fd: i32) -> Option<&'static AtomicU64> {
    usize::try_from(fd).ok().and_then(|fd| POSITIONS.get(fd))
}

/// The position of `fd`, if it is kept here.
#[inline]
pub(crate) fn kept(fd: i32) -> Option<i64> {
    place(fd).and_then(|place| place.load(Relaxed).checked_sub(1)).map(|at| at as i64)
}

/// `fd` was just opened, and nobody else has that open file: from now on its position is kept here.
pub(crate) fn keep(fd: i32) {
    set(fd, 0);
}

/// The position of `fd`, which is kept here, is `at` from now on.
#[inline]
pub(crate) fn set(fd: i32, at: i64) {
    if let Some(place) = place(fd) {
        place.store(at as u64 + 1, Relaxed);
    }
}

/// `fd` is being closed.
#[inline]
pub(crate) fn forget(fd: i32) {
    if let Some(place) = place(fd)
        && place.load(Relaxed) != 0
    {
        place.store(0, Relaxed);
    }
}

/// Somebody else may use the position of `fd`: the kernel has it from now on.
pub(crate) fn hand_back(fd: i32) {
    if let Some(at) = kept(fd) {
        // SAFETY: lseek(2) takes no memory; a descriptor that is none makes it fail.
        unsafe { libc::syscall(libc::SYS_lseek, fd, at, libc::SEEK_SET) };
        forget(fd);
    }
}

/// As [`hand_back`], for all descriptors of the image.
pub(crate) fn hand_all_back() {
    image_numbers().for_each(hand_back);
}
