//! Whether an early checkpoint costs little. What has collected since the last one is what a crash
//! costs, and memory that is touched for the first time, or has left the processor's caches, is
//! slow: so a checkpoint may be made long before it must be. It is, where the committer has nothing
//! to do, and where all early ones together hold requests up for a small part of the time, however
//! long the daemon takes to write what it holds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One part of the time.
const PART: u64 = 100;

/// How long a roll-forward goes on without a checkpoint, in ns, and how much longer than that took.
const CUT: u64 = 30_000_000;
const CUT_PART: u64 = 4;

/// How long checkpoints hold requests up. One thread at a time makes them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last one that came to its end was begun, and when it ended, in ns; 0: none yet.
    begun: AtomicU64,
    ended: AtomicU64,
    /// How long that took.
    took: AtomicU64,
}

impl Pace {
    pub(super) fn begin(&self, now: u64) {
        self.begun.store(now, Relaxed);
    }

    pub(super) fn end(&self, now: u64) {
        self.took.store(now.saturating_sub(self.begun.load(Relaxed)), Relaxed);
        self.ended.store(now, Relaxed);
    }

    /// Whether a checkpoint in the middle of a roll-forward is worth while: what is done since the
    /// last one, or since this was asked for the first time, takes long enough to be lost, and long
    /// compared with what one costs.
    pub(super) fn allows_cut(&self, now: u64) -> bool {
        let _ = self.ended.compare_exchange(0, now, Relaxed, Relaxed);
        let since = now.saturating_sub(self.ended.load(Relaxed).max(self.begun.load(Relaxed)));
        since > CUT && since / CUT_PART >= self.took.load(Relaxed)
    }

    /// Whether one more would, by the last one, keep to their part of the time.
    pub(super) fn allows(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.ended.load(Relaxed));
        since / PART >= self.took.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_ones_keep_to_their_part() {
        let pace = Pace::default();
        assert!(pace.allows(0), "nothing is known of the first one");
        pace.begin(1_000);
        pace.end(1_000 + 50);
        assert!(!pace.allows(1_050) && !pace.allows(1_050 + 50 * PART - 1));
        assert!(pace.allows(1_050 + 50 * PART));
        // One that took longer than a part of all time so far.
        pace.begin(10_000);
        pace.end(20_000);
        assert!(!pace.allows(20_000 + 10_000 * PART - 1) && pace.allows(20_000 + 10_000 * PART));
    }
}
