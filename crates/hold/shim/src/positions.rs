//! Where the daemon's descriptors of its image stand.
//!
//! What is read and written there at a descriptor's position goes by an offset, so the kernel would
//! have to be asked for the position before each call and told the new one after it. It is kept
//! here instead, and a daemon that seeks and reads, as fusefat does for each entry of a directory,
//! needs no system call for what lies in the overlay. As soon as somebody else may use the same
//! open file (a duplicate, a child, a copy within the kernel), the position is handed back to the
//! kernel, and stays there.

use crate::descriptors::{DESCRIPTORS, image_numbers};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// For each descriptor its position and 1; 0 if the kernel has it, [`BUSY`] while it is being told.
static POSITIONS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// A position that a thread is handing back: others wait until it has.
const BUSY: u64 = u64::MAX;
/// How often they look. That thread may be missing, in a child that was forked meanwhile.
const LOOKS: u32 = 100_000;

#[inline]
fn entry(fd: i32) -> Option<&'static AtomicU64> {
    usize::try_from(fd).ok().and_then(|fd| POSITIONS.get(fd))
}

/// The position of `fd`, if it is kept here.
#[inline]
pub(crate) fn kept(fd: i32) -> Option<i64> {
    entry(fd).and_then(|entry| settled(entry).checked_sub(1)).map(|at| at as i64)
}

/// What `entry` is when nobody is handing it back.
#[inline]
fn settled(entry: &AtomicU64) -> u64 {
    let now = entry.load(Acquire);
    if now == BUSY { wait_for(entry) } else { now }
}

#[cold]
fn wait_for(entry: &AtomicU64) -> u64 {
    for _ in 0..LOOKS {
        std::thread::yield_now();
        let now = entry.load(Acquire);
        if now != BUSY {
            return now;
        }
    }
    entry.store(0, Relaxed);
    0
}

/// `fd` was just opened, and nobody else has that open file: from now on its position is kept here.
pub(crate) fn keep(fd: i32) {
    if let Some(entry) = entry(fd) {
        entry.store(1, Relaxed);
    }
}

/// The position of `fd` is `to` from now on; `false` if it is not kept here any more, or not
/// `from`.
#[inline]
pub(crate) fn change(fd: i32, from: i64, to: i64) -> bool {
    let (from, to) = (from as u64 + 1, to as u64 + 1);
    entry(fd).is_some_and(|entry| entry.compare_exchange(from, to, Relaxed, Relaxed).is_ok())
}

/// `fd` is being closed.
#[inline]
pub(crate) fn forget(fd: i32) {
    if let Some(entry) = entry(fd)
        && entry.load(Relaxed) != 0
    {
        entry.store(0, Relaxed);
    }
}

/// Somebody else may use the position of `fd`: the kernel has it from now on.
pub(crate) fn hand_back(fd: i32) {
    let Some(entry) = entry(fd) else { return };
    loop {
        let kept = settled(entry);
        let Some(at) = kept.checked_sub(1) else { return };
        if entry.compare_exchange(kept, BUSY, Acquire, Relaxed).is_ok() {
            // SAFETY: lseek(2) takes no memory; a descriptor that is none makes it fail.
            unsafe { belay_sys::raw::syscall(libc::SYS_lseek, fd, at, libc::SEEK_SET) };
            entry.store(0, Release);
            return;
        }
    }
}

/// As [`hand_back`], for all descriptors of the image.
pub(crate) fn hand_all_back() {
    image_numbers().for_each(hand_back);
}
