//! Looks whether another program has mounted where the daemon was to.

use crate::clock::SECOND;

/// How soon it is looked first whether another program has mounted, while what was started lives,
/// and once more at what is there.
pub(crate) const SOON: u64 = SECOND / 5;
/// The pause between later looks: one that waits for a password may do so for hours.
const LONGEST: u64 = SECOND;

/// Looks for what another program has mounted, until the daemon has.
#[derive(Debug, Default)]
pub(crate) struct StrayLooks {
    /// The pause before the next one.
    pause: u64,
    /// What was there at the last look. One is not enough: a process is neither the one nor the
    /// other program for an instant.
    seen: Option<String>,
}

impl StrayLooks {
    /// Something was started.
    pub fn begin(&mut self) {
        *self = Self { pause: SOON, seen: None };
    }

    /// This file system was there, or none. Gives whether it was there at the last look as well,
    /// and else the pause before the next one.
    pub fn see(&mut self, device: Option<String>) -> Result<(), u64> {
        let again = device.is_some() && self.seen == device;
        let pause = pause(self.pause, device.is_some() && !again);
        *self = Self { pause, seen: device };
        if again { Ok(()) } else { Err(pause) }
    }
}

/// The pause behind a look that came after `last`. `is_news`: something is there that was not.
fn pause(last: u64, is_news: bool) -> u64 {
    if is_news { SOON } else { last.saturating_mul(2).clamp(SOON, LONGEST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_looks_grow_to_a_bound() {
        let mut last = SOON;
        for _ in 0..100 {
            let next = pause(last, false);
            assert!(next > last || next == LONGEST);
            last = next;
        }
        assert_eq!(last, LONGEST);
        assert_eq!(pause(last, true), SOON, "what is there is looked at again soon");
    }
}
