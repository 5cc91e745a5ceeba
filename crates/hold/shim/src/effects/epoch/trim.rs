//! What a long epoch took of the memory is given back when the supervisor finds that it is not used
//! any more.
//!
//! It is done here, as only who writes and seals knows that nobody uses the memory: the daemon's
//! threads read what is sealed while the committer, in another process, says that it is on the
//! image.

use super::Epoch;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that are given back at a time: the daemon's other threads wait so long to use the image.
const SLICE: usize = 8 << 20;
/// Only whole large pages are given back: what is left of one would be small ones.
const LARGE: usize = 2 << 20;

impl Epoch<'_> {
    /// Whether that is to be done.
    #[inline]
    pub(super) fn is_trim_due(&self) -> bool {
        self.shim.control().trims_asked() != self.state.trimmed.load(Relaxed)
    }

    /// Does it. No lock of belay's may be held.
    #[cold]
    pub(crate) fn trim(&self) {
        let asked = self.shim.control().trims_asked();
        if self.state.trimmed.swap(asked, Relaxed) == asked {
            return;
        }
        for number in 0..2 {
            let mut done = 0;
            loop {
                // Looked at anew each time: an epoch may have ended in between.
                let alone = self.state.overlay.write().unwrap_or_else(PoisonError::into_inner);
                let spare = self.overlay().spare().ok();
                let Some(range) = spare.and_then(|spare| spare.get(number).cloned()) else { break };
                let start = range.start.next_multiple_of(LARGE).max(done);
                let slice = start..range.end.min(start + SLICE).max(start);
                self.give_back(&slice);
                drop(alone);
                done = slice.end;
                if slice.is_empty() || done >= range.end {
                    break;
                }
            }
        }
        let session = self.shim.host.session();
        session.log_spare().iter().for_each(|range| self.give_back(range));
    }

    fn give_back(&self, range: &Range<usize>) {
        let (start, end) = (range.start.next_multiple_of(LARGE), range.end / LARGE * LARGE);
        if start < end {
            // It stays as it is then, which is as right.
            let _ = self.shim.host.memory().discard(start, end - start);
        }
    }
}
