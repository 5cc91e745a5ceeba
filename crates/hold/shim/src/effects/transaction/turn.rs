//! Whose turn it is: one request at a time is given to the daemon, and writes to the image are its
//! own.

use belay_recorder::Slot;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A request's turn to be given to the daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) unique: u64,
    /// The number of its turn; none if it does not wait for one.
    pub(crate) number: Option<u32>,
}

/// Whose turn it is, by the turn's number (high half), and the slot of its request, plus one (low
/// half; 0: none, or not known yet). The slot is known under the session's lock only, and put here
/// without the transaction's: no thread holds both of them. Who puts it there names its turn, in
/// the one step in which that is compared, so the slot of a request whose turn is over does not
/// become another's.
#[derive(Debug, Default)]
pub(super) struct CurrentTurn(AtomicU64);

impl CurrentTurn {
    /// The number of this turn.
    pub(super) fn turn(&self) -> u32 {
        (self.0.load(Relaxed) >> 32) as u32
    }

    /// Another turn begins. Under the transaction's lock.
    pub(super) fn pass(&self) {
        self.0.store(u64::from(self.turn().wrapping_add(1)) << 32, Relaxed);
    }

    /// The request whose turn is `turn` is on record in `slot`. Who works on it reads that after it
    /// was given to the daemon by this thread, or was told of it by who did.
    pub(super) fn assign(&self, turn: u32, slot: Option<Slot>) {
        let low = slot.map_or(0, |slot| u64::from(slot.0) + 1);
        let _ = self.0.fetch_update(Relaxed, Relaxed, |word| {
            ((word >> 32) as u32 == turn).then_some((u64::from(turn) << 32) | low)
        });
    }

    /// The slot of the request whose turn it is.
    pub(super) fn slot(&self) -> Option<Slot> {
        (self.0.load(Relaxed) as u32).checked_sub(1).map(Slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_the_turn_it_was_given_for() {
        let current = CurrentTurn::default();
        let first = current.turn();
        assert_eq!(current.slot(), None);
        current.assign(first, Some(Slot(0)));
        assert_eq!(current.slot(), Some(Slot(0)));
        current.pass();
        assert_eq!(current.slot(), None);
        current.assign(first, Some(Slot(7))); // too late
        assert_eq!(current.slot(), None);
        current.assign(current.turn(), Some(Slot(u32::MAX - 1)));
        assert_eq!(current.slot(), Some(Slot(u32::MAX - 1)));
        assert_eq!(current.turn(), first.wrapping_add(1));
    }
}
