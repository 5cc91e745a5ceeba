//! Which of the daemon's descriptors are the FUSE device.
//!
//! Asked at every read and write of the process, so it is one load and one bit test.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 256;
static DEVICE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn place(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    DEVICE.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
}

/// Whether `fd` is the device.
#[inline]
pub(crate) fn is_device(fd: i32) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

/// Notes that `fd` is the device; `false` if the number is too high to be noted.
pub(crate) fn add(fd: i32) -> bool {
    place(fd).is_some_and(|(word, bit)| {
        word.fetch_or(bit, Relaxed);
        true
    })
}

/// Notes that `fd` is being closed or given another meaning.
#[inline]
pub(crate) fn remove(fd: i32) {
    if let Some((word, bit)) = place(fd)
        && word.load(Relaxed) & bit != 0
    {
        word.fetch_and(!bit, Relaxed);
    }
}
