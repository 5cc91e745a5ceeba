//! Buffers that the kernel copies requests into are brought into memory first.
//!
//! When a thread that a fatal signal has reached takes a request from the device, and a page of
//! its buffer is not in memory yet, the kernel cannot fault it in any more (get_user_pages gives
//! EINTR) and ends the request with EIO (fs/fuse/dev.c, fuse_dev_do_read): the application sees
//! the crash. Pages that are there are found without a fault, also by a dying thread.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};

const PAGE: usize = 4096;

/// What [`mark`] gives for buffers that were seen last. Shared by all threads and asked at every
/// read: a load, where a thread's own storage is a call into the loader, as this library is
/// preloaded. A mark that is overwritten costs one look at [`SEEN`].
static LAST: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// All buffers seen, for daemons whose threads share them.
static SEEN: LazyLock<Mutex<HashSet<(usize, usize)>>> = LazyLock::new(Mutex::default);

/// More different buffers than this are not those of a daemon that uses them again.
const MANY: usize = 4096;

/// One number for a buffer; two buffers hardly ever have the same.
#[inline]
fn mark(buffer: usize, len: usize) -> usize {
    (buffer ^ len.rotate_right(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Brings a buffer of the daemon into memory when it is first seen. The contents stay.
#[inline]
pub(crate) fn once(buffer: *const u8, len: usize) {
    let mark = mark(buffer as usize, len);
    let place = LAST.get(mark >> 58);
    if place.is_none_or(|place| place.load(Relaxed) != mark) {
        first((buffer as usize, len));
        if let Some(place) = place {
            place.store(mark, Relaxed);
        }
    }
}

#[cold]
fn first(range: (usize, usize)) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() < MANY && seen.insert(range) {
        drop(seen);
        now(range.0, range.1);
    }
}

/// Brings memory of this process that is about to be written to into memory.
pub(crate) fn now(at: usize, len: usize) {
    let start = at & !(PAGE - 1);
    let end = (at + len).next_multiple_of(PAGE);
    let errno = crate::real::errno();
    // SAFETY: MADV_POPULATE_WRITE changes no contents; on addresses that are not mapped it only
    // gives an error, as it does on kernels before 5.14, where a crash may then cost an EIO.
    unsafe {
        libc::syscall(libc::SYS_madvise, start, end - start, libc::MADV_POPULATE_WRITE);
    }
    crate::real::set_errno(errno);
}
