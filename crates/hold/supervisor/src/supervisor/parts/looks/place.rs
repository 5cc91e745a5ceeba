//! Looks for the place of a file system that is served.

use crate::clock::SECOND;

/// The first pause between two looks at the mount table, and the longest.
pub(crate) const FIRST: u64 = SECOND / 100;
const LONGEST: u64 = 10 * SECOND;

/// Looks for the place of a file system that is served, and in no place yet.
#[derive(Debug, Default)]
pub(crate) struct PlaceLooks {
    /// The pause after the next look.
    pause: u64,
    /// Since when.
    since: Option<u64>,
}

impl PlaceLooks {
    /// The daemon serves. `unknown`: where, is not known yet.
    pub fn begin(&mut self, now: u64, unknown: bool) {
        self.pause = FIRST;
        self.since = self.since.or(Some(now)).filter(|_| unknown);
    }

    /// Since when it is looked in vain.
    pub fn since(&self) -> Option<u64> {
        self.since
    }

    /// It is looked once more. Gives the pause after that.
    pub fn again(&mut self) -> u64 {
        self.pause = self.pause.saturating_mul(2).min(LONGEST);
        self.pause
    }

    /// It is found.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}
