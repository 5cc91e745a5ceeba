//! The ring of what recovery decided.

use super::block::Control;
use super::words::W_DECISION_TOP;
use crate::layout::{DECISION_WORDS, DECISIONS};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

/// What recovery decided for one request, for the crash report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Generation that made it.
    pub generation: u32,
    /// Opcode of the request.
    pub opcode: u32,
    /// The kernel's id of the request, without the resend bit.
    pub unique: u64,
    /// The kernel's node id.
    pub node: u64,
    /// Row of the decision table, see `belay_session::decision`.
    pub row: u32,
    /// What the caller got: 0 or a positive errno.
    pub errno: i32,
    /// The request's arguments and the reason, for people.
    pub text: String,
}

impl<M: Memory> Control<'_, M> {
    /// Appends a decision to the ring; the oldest is overwritten.
    pub fn decide(&self, decision: &Decision) {
        let index = self.memory.add(W_DECISION_TOP, 1);
        let at = self.decision_at(index);
        self.memory.store(at, 0); // not valid while it is written
        self.memory.store(at + 1, pair(decision.generation, decision.opcode));
        self.memory.store(at + 2, decision.unique);
        self.memory.store(at + 3, decision.node);
        self.memory.store(at + 4, pair(decision.row, decision.errno.unsigned_abs()));
        let text = decision.text.as_bytes();
        let text = text.get(..(DECISION_WORDS - 6) * 8).unwrap_or(text);
        self.memory.store(at + 5, text.len() as u64);
        self.memory.store_bytes(at + 6, text);
        self.memory.store(at, index.wrapping_add(1));
    }

    /// How many decisions were ever made; those with an index from here on are newer.
    pub fn decision_top(&self) -> u64 {
        self.memory.load(W_DECISION_TOP)
    }

    /// The decisions with indices in `from..decision_top()`, as far as they are still held.
    pub fn decisions_since(&self, from: u64) -> Vec<Decision> {
        let top = self.decision_top();
        let from = from.max(top.saturating_sub(DECISIONS as u64));
        (from..top).filter_map(|index| self.decision(index)).collect()
    }

    fn decision_at(&self, index: u64) -> usize {
        self.layout.decisions + (index % DECISIONS as u64) as usize * DECISION_WORDS
    }

    /// `None` if its writer died over it, so that the place holds nothing or an older one.
    fn decision(&self, index: u64) -> Option<Decision> {
        let at = self.decision_at(index);
        if self.memory.load(at) != index.wrapping_add(1) {
            return None;
        }
        let ids = self.memory.load(at + 1);
        let outcome = self.memory.load(at + 4);
        let length = (self.memory.load(at + 5) as usize).min((DECISION_WORDS - 6) * 8);
        let mut text = vec![0; length];
        self.memory.load_bytes(at + 6, &mut text);
        Some(Decision {
            generation: high(ids),
            opcode: low(ids),
            unique: self.memory.load(at + 2),
            node: self.memory.load(at + 3),
            row: high(outcome),
            errno: low(outcome) as i32,
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}
