//! How often it is looked.

use crate::clock::SECOND;

/// How often it is looked for other mounts in one life of a daemon, which may say that there is one
/// as often as it likes.
const SECOND_LOOKS: u32 = 64;

/// Looks at the memory that the recorder takes.
#[derive(Debug, Default)]
pub(crate) struct RecordPause(u64);

impl RecordPause {
    /// A daemon is started: what the last one has died of may come at once.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// The pause until the next look: 1/16 s, 1/8 s and so on, then a second.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.saturating_mul(2).clamp(SECOND / 16, SECOND);
        self.0
    }
}

/// Looks for other mounts of the daemon.
#[derive(Debug, Default)]
pub(crate) struct SecondLooks(u32);

impl SecondLooks {
    /// Another daemon is about to start.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// Whether it may be looked once more, which counts.
    pub fn may(&mut self) -> bool {
        let may = self.0 < SECOND_LOOKS;
        self.0 += u32::from(may);
        may
    }
}
