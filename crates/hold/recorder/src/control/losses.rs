//! The ring of what a shim saw lost, or could not keep: what makes a mount DEGRADED.

use super::block::Control;
use super::words::{W_LOSS_TOP, W_LOSSES};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

/// Losses that the ring holds.
const LOSSES: u64 = 16;
const WORDS: usize = 32;
const TEXT: usize = (WORDS - 2) * 8;

/// What was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Loss {
    /// Something is not on record: a further crash cannot be hidden exactly.
    Record = 1,
    /// A successor negotiated other options than the first daemon.
    Options = 2,
    /// Data that the daemon had acknowledged.
    Data = 3,
    /// An open file or directory that a successor cannot have open again.
    Handle = 4,
    /// What was acknowledged of a file is neither stored nor on record: it is lost if the daemon
    /// dies now.
    Unstored = 5,
    /// What was told as that, in the same words, is stored now.
    Stored = 6,
    /// A request failed that went another way when it was done again, or may have been done twice.
    Request = 7,
    /// What the daemon says of the links of an open file that has lost its name is wrong.
    Links = 8,
    /// The daemon has made another mount, which is not held: in that place, if it is known.
    Second = 9,
}

impl<M: Memory> Control<'_, M> {
    /// Tells the supervisor that something is lost: which object, and what of it. Once for each
    /// object: the ring is short. Wake the supervisor after it.
    pub fn lose(&self, loss: Loss, what: &str) {
        let index = self.memory.add(W_LOSS_TOP, 1);
        let at = loss_at(index);
        let text = what.as_bytes();
        let text = text.get(..TEXT).unwrap_or(text);
        self.memory.store(at, 0); // not valid while it is written
        self.memory.store(at + 1, pair(loss as u32, text.len() as u32));
        self.memory.store_bytes(at + 2, text);
        self.memory.store(at, index.wrapping_add(1));
    }

    /// How many losses were ever told.
    pub fn loss_top(&self) -> u64 {
        self.memory.load(W_LOSS_TOP)
    }

    /// The losses with indices in `from..loss_top()`, as far as they are still held, up to the
    /// first that is just being told; and the index from which on to ask next. What a daemon has
    /// made of them is left out, or is text of any kind.
    pub fn losses_since(&self, from: u64) -> (Vec<(Loss, String)>, u64) {
        let top = self.loss_top();
        let mut losses = Vec::new();
        for index in from.max(top.saturating_sub(LOSSES))..top {
            // One that comes later overwrites an older one, whose number is lower.
            let mark = self.memory.load(loss_at(index));
            if mark < index.wrapping_add(1) {
                return (losses, index);
            }
            losses.extend(self.loss(index));
        }
        (losses, top)
    }

    fn loss(&self, index: u64) -> Option<(Loss, String)> {
        let at = loss_at(index);
        if self.memory.load(at) != index.wrapping_add(1) {
            return None;
        }
        let word = self.memory.load(at + 1);
        let loss = match high(word) {
            1 => Loss::Record,
            2 => Loss::Options,
            3 => Loss::Data,
            4 => Loss::Handle,
            5 => Loss::Unstored,
            6 => Loss::Stored,
            7 => Loss::Request,
            8 => Loss::Links,
            9 => Loss::Second,
            _ => return None,
        };
        let mut text = vec![0; (low(word) as usize).min(TEXT)];
        self.memory.load_bytes(at + 2, &mut text);
        Some((loss, String::from_utf8_lossy(&text).into_owned()))
    }
}

fn loss_at(index: u64) -> usize {
    W_LOSSES + (index % LOSSES) as usize * WORDS
}
