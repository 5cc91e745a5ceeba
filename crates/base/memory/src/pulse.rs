//! How a process shows that it gets on: four words that somebody else looks at now and then. A
//! fifth one tells the process that it is to end.
//!
//! Invariant: a thread that waits for another process or for a disk says so before, and takes that
//! back behind: that is no hang of the process, however long it takes.

use crate::words::Memory;

/// Bytes of a pulse.
pub const BYTES: usize = 40;
const BEATS: usize = 0;
const WAITS: usize = 1;
const GAVE_UP: usize = 2;
const LIVES: usize = 3;
const TOLD: usize = 4;

/// Where the word is, in bytes, that is not 0 if the process is to end for good when it is asked
/// to. Whoever asks writes it before, and takes it back before the next life begins.
pub const TOLD_AT: u64 = 8 * TOLD as u64;

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
    /// One of its threads waits for somebody else.
    pub waits: bool,
    /// It has given up: another life of it would do no better.
    pub gave_up: bool,
}

impl<M: Memory> Pulse<M> {
    /// In that memory, of [`BYTES`] bytes. An earlier life may have left anything there.
    pub fn new(memory: M) -> Self {
        memory.store(WAITS, 0);
        memory.store(GAVE_UP, 0);
        memory.add(LIVES, 1);
        let this = Self { memory };
        this.beat();
        this
    }

    /// It gets on.
    pub fn beat(&self) {
        self.memory.add(BEATS, 1);
    }

    /// It gives up, and is about to end.
    pub fn give_up(&self) {
        self.memory.store(GAVE_UP, 1);
    }

    /// A thread waits for somebody else from now on, or does so no more.
    pub fn wait(&self, waits: bool) {
        self.beat();
        // One less, in the arithmetic of words.
        self.memory.add(WAITS, if waits { 1 } else { u64::MAX });
    }
}

/// How many lives have had the pulse in that memory.
pub fn lives<M: Memory>(memory: &M) -> u64 {
    memory.load(LIVES)
}

/// Whether the process with the pulse in that memory is to end for good.
pub fn is_told<M: Memory>(memory: &M) -> bool {
    memory.load(TOLD) != 0
}

impl Seen {
    /// What is in these bytes.
    #[must_use]
    pub fn of(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| bytes.get(at * 8..).and_then(|rest| rest.first_chunk::<8>());
        let word = |at| word(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Self { beats: word(BEATS), waits: word(WAITS) != 0, gave_up: word(GAVE_UP) != 0 }
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
        let other = pulse.clone();
        pulse.wait(true);
        other.wait(true);
        assert!(seen().waits);
        pulse.wait(false);
        assert!(seen().waits, "the other one still does");
        other.wait(false);
        assert!(!seen().waits && !seen().gave_up);
        pulse.give_up();
        assert!(seen().gave_up);
        let before = lives(&memory);
        let _next = Pulse::new(memory.clone());
        assert_eq!(lives(&memory), before + 1);
        assert!(!seen().gave_up, "an earlier life's");
        assert!(!is_told(&memory));
        memory.store(TOLD_AT as usize / 8, 1);
        let _next = Pulse::new(memory.clone());
        assert!(is_told(&memory), "it may be told before it has begun");
    }
}
