//! Which of the daemon's descriptors are the FUSE device, and which are its image.
//!
//! Asked at every read and write of the process, so it is one load and one bit test.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 256;

/// A set of descriptors.
struct Set([AtomicU64; WORDS]);

impl Set {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    #[inline]
    fn place(&self, fd: i32) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        self.0.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
    }

    #[inline]
    fn has(&self, fd: i32) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    /// `false` if the number is too high to be noted.
    fn add(&self, fd: i32) -> bool {
        self.place(fd).is_some_and(|(word, bit)| {
            word.fetch_or(bit, Relaxed);
            true
        })
    }

    #[inline]
    fn remove(&self, fd: i32) {
        if let Some((word, bit)) = self.place(fd)
            && word.load(Relaxed) & bit != 0
        {
            word.fetch_and(!bit, Relaxed);
        }
    }
}

static DEVICE: Set = Set::new();
static IMAGE: Set = Set::new();

/// Whether `fd` is the device.
#[inline]
pub(crate) fn is_device(fd: i32) -> bool {
    DEVICE.has(fd)
}

/// Whether `fd` is the image of a daemon whose requests are transactions.
#[inline]
pub(crate) fn is_image(fd: i32) -> bool {
    IMAGE.has(fd)
}

/// Notes that `fd` is the device; `false` if the number is too high to be noted.
pub(crate) fn add(fd: i32) -> bool {
    DEVICE.add(fd)
}

/// Notes that `fd` is the image; `false` if the number is too high to be noted.
pub(crate) fn add_image(fd: i32) -> bool {
    IMAGE.add(fd)
}

/// Notes that `fd` is being closed or given another meaning.
#[inline]
pub(crate) fn remove(fd: i32) {
    DEVICE.remove(fd);
    IMAGE.remove(fd);
}
