//! How a process shows that it gets on: two words that somebody else looks at now and then.
//!
//! Invariant: what waits for another process or for a disk says so before, and takes that back behind: that is no hang of its own,
//! however long it takes.

use crate::words::Memory;

/// Bytes of a pulse.
pub const BYTES: usize = 16;
const BEATS: usize = 0;
const WAITS: usize = 1;

/// The pulse of a process.
#[derive(Clone, Debug)]
pub struct Pulse<M> {
    memory: M,
}

/// What was seen of a pulse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Grows while the process gets on.
    pub beats: u64,
    /// It waits for somebody else.
    pub waits: bool,
}

impl<M: Memory> Pulse<M> {
    /// In that memory, of [`BYTES`] bytes. An earlier life may have left anything there.
    pub fn new(memory: M) -> Self {
        let this = Self { memory };
        this.wait(false);
        this
    }

    /// It gets on.
    pub fn beat(&self) {
        self.memory.add(BEATS, 1);
    }

    /// It waits for somebody else from now on, or does so no more.
    pub fn wait(&self, waits: bool) {
        self.beat();
        self.memory.store(WAITS, u64::from(waits));
    }
}

impl Seen {
    /// What is in these bytes.
    #[must_use]
    pub fn of(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| bytes.get(at * 8..).and_then(|rest| rest.first_chunk::<8>());
        let word = |at| word(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Self { beats: word(BEATS), waits: word(WAITS) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_sys::Mapping;

    #[test]
    fn what_is_shown_is_seen() {
        let memory = std::sync::Arc::new(Mapping::blank(BYTES).unwrap());
        let seen = || {
            let mut bytes = [0; BYTES];
            memory.load_bytes(0, &mut bytes);
            Seen::of(&bytes)
        };
        memory.store(WAITS, 7);
        let pulse = Pulse::new(memory.clone());
        let first = seen();
        assert!(!first.waits, "an earlier life's");
        pulse.beat();
        assert!(seen().beats > first.beats && !seen().waits);
        pulse.wait(true);
        assert!(seen().waits);
        pulse.wait(false);
        assert!(!seen().waits);
    }
}
