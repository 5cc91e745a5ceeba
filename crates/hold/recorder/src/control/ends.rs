//! What is known of why a daemon ends: noted by its shim, judged by the supervisor.

use super::block::Control;
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

const W_ENDING: usize = 15; // generation | bits

/// What may be noted of a generation's end.
pub mod ending {
    /// It has begun to unmount.
    pub const UNMOUNTS: u32 = 1 << 0;
    /// Somebody else asked it to end: a signal came from another process, or from the terminal.
    pub const ASKED: u32 = 1 << 1;
    /// It takes signals in a way in which nobody sees whose they are.
    pub const UNSEEN: u32 = 1 << 2;
}

impl<M: Memory> Control<'_, M> {
    /// What has been noted of `generation`, see [`ending`].
    pub fn ending(&self, generation: u32) -> u32 {
        let word = self.memory.load(W_ENDING);
        if high(word) == generation { low(word) } else { 0 }
    }

    /// Notes `bits` of `generation`. Async-signal-safe.
    pub fn note_ending(&self, generation: u32, bits: u32) {
        let mut old = self.memory.load(W_ENDING);
        loop {
            let noted = if high(old) == generation { low(old) } else { 0 };
            let new = pair(generation, noted | bits);
            match self.memory.compare_exchange(W_ENDING, old, new) {
                Ok(_) => return,
                Err(found) if found == old => return, // outside of the memory
                Err(found) => old = found,
            }
        }
    }
}
