//! Memory that the next WRITE comes to, brought into the processor's cache while nobody waits for
//! it.
//!
//! A WRITE is copied twice: to the op-log when it arrives, to the overlay when the daemon writes
//! it. Both places were used last an epoch ago. To wait for 64 lines of each is a quarter of what
//! holding a WRITE of 4 KiB costs; to ask for them before the thread goes to sleep in the kernel is
//! a fifth of that.

use belay_memory::Memory;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: usize = 4096;

/// First words of the pages that are wanted next; 0 for none.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    log: AtomicUsize,
    overlay: AtomicUsize,
}

impl Ahead {
    /// A WRITE has arrived: the next one's data come to this page of the op-log.
    #[inline]
    pub(super) fn want_log(&self, at: usize) {
        self.log.store(at, Relaxed);
    }

    /// The daemon has written: a further page comes to this one of the overlay.
    #[inline]
    pub(super) fn want_overlay(&self, at: usize) {
        self.overlay.store(at, Relaxed);
    }

    /// The calling thread is about to ask the kernel for a request: brings near what is wanted.
    #[inline]
    pub(super) fn bring_near<M: Memory>(&self, memory: &M) {
        for wanted in [&self.log, &self.overlay] {
            let at = wanted.load(Relaxed);
            if at != 0 {
                wanted.store(0, Relaxed);
                memory.prefetch(at, PAGE);
            }
        }
    }
}
