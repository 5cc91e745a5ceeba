//! How the supervisor shows that it gets on, and how the keeper sees that it does not.
//!
//! It is one word behind the ledger's slots, where daemons do not reach it. A keeper that does not
//! look holds up nobody, as it could if that were told over the link.

use crate::clock::{self, SECOND};
use crate::ledger::HEART;
use crate::memfile::{read_at, write_at};
use crate::silence::Silence;
use rustix::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// More than the supervisor's loop waits for others, each time with a limit (see ARCHITECTURE.md).
/// One that is stopped waits for nobody.
const WAITS: u64 = 60 * SECOND;
/// The bit that says that it takes as long as it takes.
const LONG: u64 = 1;

/// The supervisor gets on. `long`: what it begins with now takes as long as it takes.
pub(crate) fn beat(ledger: &OwnedFd, long: bool) {
    // The time is another one at each beat, and under each supervisor.
    let word = clock::now() << 1 | if long { LONG } else { 0 };
    if let Err(error) = write_at(ledger.as_fd(), &word.to_ne_bytes(), HEART) {
        tracing::debug!("no heartbeat: {error}");
    }
}

/// What is seen of it.
pub(crate) fn seen(ledger: &OwnedFd) -> u64 {
    let bytes = read_at(ledger.as_fd(), 8, HEART).unwrap_or_default();
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// A watch over the heart of one supervisor.
#[derive(Debug)]
pub(crate) struct Watch {
    limit: u64,
    seen: u64,
    silence: Silence,
}

impl Watch {
    /// Of one that is started, or found, `now`, and may do nothing for as long as `limit`.
    pub fn new(limit: Duration, now: u64) -> Self {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self { limit, seen: 0, silence: Silence::new(now) }
    }

    /// A look at `now`: what was seen of its heart, and whether its process is stopped. Gives for
    /// how long it has not got on, in nanoseconds, if that is too long; then it has all the time
    /// again.
    pub fn look(&mut self, seen: u64, is_stopped: bool, now: u64) -> Option<u64> {
        let gets_on = seen != self.seen || seen & LONG != 0 && !is_stopped;
        self.seen = seen;
        let silence = self.silence.look(gets_on, now);
        let limit = if is_stopped { self.limit } else { self.limit.max(WAITS) };
        (silence > limit).then(|| {
            self.silence = Silence::new(now);
            silence
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfile::create_sized;

    /// Looks each second with the same word, until it is too long; for an hour at the most.
    fn too_long(watch: &mut Watch, seen: u64, is_stopped: bool, begin: u64) -> Option<u64> {
        (0..3600).find(|n| watch.look(seen, is_stopped, begin + n * SECOND).is_some())
    }

    #[test]
    fn a_heart_that_stands_still_is_noticed() {
        let mut watch = Watch::new(Duration::from_secs(30), 1);
        assert_eq!(watch.look(2, false, SECOND), None);
        // It has all the time again behind that.
        for begin in [1, 1000] {
            assert_eq!(too_long(&mut watch, 2, true, begin * SECOND), Some(31));
        }
        // By its own limits it may wait for longer.
        assert_eq!(too_long(&mut watch, 2, false, 2000 * SECOND), Some(61));
        // At the end it stores what there is; it does not if it is stopped.
        assert_eq!(too_long(&mut watch, 3, false, 3000 * SECOND), None);
        assert_eq!(too_long(&mut watch, 3, true, 9000 * SECOND), Some(31));
    }

    #[test]
    fn each_beat_is_another() {
        let ledger = create_sized("belay-test", crate::ledger::BYTES).unwrap();
        assert_eq!(seen(&ledger), 0);
        beat(&ledger, false);
        let first = seen(&ledger);
        beat(&ledger, true);
        let second = seen(&ledger);
        assert!(first != 0 && second > first && (first & LONG, second & LONG) == (0, LONG));
    }
}
