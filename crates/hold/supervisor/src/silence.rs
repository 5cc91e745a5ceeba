//! For how long somebody has not got on, as repeated looks tell.
//!
//! Invariant: only time counts in which the looks came as often as they were to. Whoever looks and
//! was stopped, frozen or held up knows nothing of that time, and often everybody else was as well:
//! those who are watched have all the time again.

use crate::clock::SECOND;

/// From one look to the next there is a second or less. After more than this, the one who looks was
/// held up.
const LATE: u64 = 3 * SECOND;

/// Since when somebody has not got on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    since: u64,
    looked: u64,
}

impl Silence {
    /// From `now` on, in nanoseconds of [`crate::clock::now`].
    pub fn new(now: u64) -> Self {
        Self { since: now, looked: now }
    }

    /// A look at `now`, which has found whether it gets on. Gives for how long it has not, in
    /// nanoseconds.
    pub fn look(&mut self, gets_on: bool, now: u64) -> u64 {
        if was_held_up(self.looked, now) || gets_on {
            self.since = now;
        }
        self.looked = now;
        now.saturating_sub(self.since)
    }
}

/// Whether who looks `now`, and has looked before at `looked`, was held up meanwhile.
pub(crate) fn was_held_up(looked: u64, now: u64) -> bool {
    now.saturating_sub(looked) > LATE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_get_on_is_silent_for_as_long_as_it_was_looked_at() {
        let mut silence = Silence::new(5);
        assert_eq!(silence.look(false, 5 + SECOND), SECOND);
        assert_eq!(silence.look(false, 5 + 2 * SECOND), 2 * SECOND);
        assert_eq!(silence.look(true, 5 + 3 * SECOND), 0);
        assert_eq!(silence.look(false, 5 + 4 * SECOND), SECOND);
        // Both were stopped.
        assert_eq!(silence.look(false, 5 + 900 * SECOND), 0);
        assert_eq!(silence.look(false, 5 + 901 * SECOND), SECOND);
        assert_eq!(silence.look(false, 0), 0);
    }
}
