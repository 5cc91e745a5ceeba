//! What a daemon died of, where its shim, or the session in it, can tell.

use super::block::Control;
use super::words::{W_FORWARD, W_OWN_SIGNAL, W_VIOLATION};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

impl<M: Memory> Control<'_, M> {
    /// What the reply was like for which `generation` was ended, if that is why it was: three
    /// lines, the rule, the request and the reply.
    pub fn violation(&self, generation: u32) -> Option<Vec<u8>> {
        let text = self.take(W_VIOLATION + 1, 127);
        let of = self.memory.load(W_VIOLATION);
        (of == u64::from(generation) + 1 && !text.is_empty()).then_some(text)
    }

    /// Declares why `generation` is about to be ended. By its shim, once.
    pub fn set_violation(&self, generation: u32, text: &[u8]) {
        self.memory.store(W_VIOLATION, 0);
        self.put(W_VIOLATION + 1, 127, text);
        self.memory.store(W_VIOLATION, u64::from(generation) + 1);
    }

    /// The last signal that `generation` sent to itself, if it did.
    pub fn own_signal(&self, generation: u32) -> Option<i32> {
        let word = self.memory.load(W_OWN_SIGNAL);
        (high(word) == generation && low(word) != 0).then_some(low(word) as i32)
    }

    /// Declares that `generation` is about to send itself a signal. By its shim.
    pub fn set_own_signal(&self, generation: u32, signal: i32) {
        self.memory.store(W_OWN_SIGNAL, pair(generation, signal.unsigned_abs()));
    }

    /// Which generation was doing records of the op-log again, and at which of them, if the last
    /// one to do so has not come to the end of them.
    pub fn forward(&self) -> Option<(u32, u32)> {
        let word = self.memory.load(W_FORWARD);
        low(word).checked_sub(1).map(|record| (high(word), record))
    }

    /// `generation` is about to do that record of the op-log again; `None`: it has done all of
    /// them.
    pub fn set_forward(&self, generation: u32, record: Option<u32>) {
        let record = record.map_or(0, |record| record.saturating_add(1));
        self.memory.store(W_FORWARD, pair(generation, record));
    }
}
