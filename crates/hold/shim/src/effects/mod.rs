//! What the daemon does for a request outside of itself, as the policy wants it.
//!
//! | module | answers |
//! | --- | --- |
//! | [`tag`] | which request a thread works on |
//! | [`journal`] | what becomes of an effectful call (policy `journal`) |
//! | [`probe`] | what there is to be seen of a call whose outcome is not known |
//! | [`image`] | what becomes of reads and writes of the image (policy `transaction`) |
//! | [`epoch`] | what becomes of the image, and of answers, until a checkpoint (policy `epoch`) |
//! | [`after`] | what a dead generation has left, at the start |
//!
//! Under the policy `reconcile` each interposed call costs one load more than without belay, and a word of the thread's own where
//! it is looked for whether a daemon keeps something to itself.

pub(crate) mod after;
pub(crate) mod epoch;
pub(crate) mod image;
pub(crate) mod journal;
mod probe;
pub(crate) mod tag;

use crate::dying;
use crate::start::Shim;
use belay_effects::area::{Area, Tally};
use belay_recorder::Slot;
use belay_recorder::control::options;
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::{Opcode, UNIQUE_RESEND, get_u64};
use image::Turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is done about effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Nothing: the session asks the successor.
    None,
    /// The same, but it is looked for whether something of a request leaves the daemon.
    Watched,
    /// Calls are logged.
    Journal,
    /// Image writes are collected until the request is answered.
    Transaction,
    /// Image writes are collected until a checkpoint.
    Epoch,
}

static POLICY: AtomicU8 = AtomicU8::new(0);

/// The policy of this process.
#[inline]
pub(crate) fn policy() -> Policy {
    match POLICY.load(Relaxed) {
        1 => Policy::Journal,
        2 => Policy::Transaction,
        3 => Policy::Epoch,
        4 => Policy::Watched,
        _ => Policy::None,
    }
}

impl Policy {
    /// Whether calls leave a trace in the recorder.
    #[inline]
    pub(crate) fn records(self) -> bool {
        !matches!(self, Self::None | Self::Watched)
    }
}

/// Whether it matters what the calling thread does outside of the daemon.
#[inline]
pub(crate) fn matters() -> bool {
    match policy() {
        Policy::None => false,
        Policy::Watched => journal::is_looked_for(),
        _ => true,
    }
}

/// Sets the policy, from the recorder's options.
pub(crate) fn choose(bits: u64) {
    let policy = match bits {
        _ if bits & options::EPOCH != 0 => 3,
        _ if bits & options::TRANSACTION != 0 => 2,
        _ if bits & options::JOURNAL != 0 => 1,
        _ if bits & (options::WATCHED | options::LOSES_UNCONNECTED) != 0 => 4,
        _ => 0,
    };
    POLICY.store(policy, Relaxed);
}

impl Shim {
    pub(crate) fn area(&self) -> Area<'_, Arc<Mapping>> {
        Area::new(self.host.memory(), *self.host.layout())
    }

    /// The calling thread is about to give `message` to the daemon. Gives the slot that it is on record
    /// in, under a policy.
    #[inline]
    pub(crate) fn effects_begin(
        &self,
        session: &Session<Arc<Mapping>>,
        message: &[u8],
    ) -> Option<Slot> {
        if policy() == Policy::None { None } else { self.effects_begin_request(session, message) }
    }

    fn effects_begin_request(
        &self,
        session: &Session<Arc<Mapping>>,
        message: &[u8],
    ) -> Option<Slot> {
        let unique = get_u64(message, 8).unwrap_or(0) & !UNIQUE_RESEND;
        let slot = session.slot_in_hand(unique);
        if matches!(policy(), Policy::Watched | Policy::Transaction) {
            self.watch_begin(session, (unique, slot), message);
        }
        if policy() == Policy::Watched {
            return slot;
        }
        if let Some((unique, slot)) = session.sake_of(unique)
            && belay_wire::CHANGES.has(belay_host::opcode(message))
        {
            // A part of that request is done in another's name, so its own log does not tell all.
            self.area().log(slot).mark_opaque(unique);
        }
        match policy() {
            Policy::Journal => self.journal_begin(unique, slot, message),
            Policy::Epoch => {
                let unique = get_u64(message, 8).unwrap_or(0);
                epoch::clock::freeze(session.time_of(unique).unwrap_or(session.time()));
            }
            _ => {}
        }
        slot
    }

    /// The request that has this turn is on record in `slot`.
    #[inline]
    pub(crate) fn effects_assign(&self, turn: Turn, slot: Option<Slot>) {
        if policy() == Policy::Transaction {
            self.image.assign(turn, slot);
        }
    }

    /// The calling thread has `message` for the daemon, and holds no lock of belay's. Gives its turn,
    /// once it has come.
    #[inline]
    pub(crate) fn effects_turn(&self, message: &[u8]) -> Turn {
        let unique = get_u64(message, 8).unwrap_or(0) & !UNIQUE_RESEND;
        if policy() != Policy::Transaction {
            return Turn { unique, number: None };
        }
        self.image_enter(unique, !NOT_ANSWERED.has(belay_host::opcode(message)))
    }

    /// It is not given to the daemon after all.
    #[inline]
    pub(crate) fn effects_leave(&self, turn: Turn) {
        if policy() == Policy::Transaction {
            self.image.leave(turn);
        }
    }

    /// The calling thread asks for more to do: what it did before, it did.
    #[inline]
    pub(crate) fn effects_rest(&self) {
        dying::prepare_thread();
        match policy() {
            Policy::None => {}
            Policy::Watched => self.watch_rest(),
            Policy::Transaction => {
                self.image_settle(None);
                self.watch_rest();
            }
            Policy::Epoch => self.epoch_rest(),
            Policy::Journal => self.journal_rest(),
        }
    }

    /// The daemon has answered `unique`, by an error or not. `Some` is the error that its caller gets instead.
    #[inline]
    pub(crate) fn effects_replied(&self, unique: u64, failed: bool) -> Option<i32> {
        match policy() {
            Policy::Journal => return self.journal_replied(unique, failed),
            Policy::Watched | Policy::Transaction => self.watched_replied(unique, failed),
            Policy::None | Policy::Epoch => {}
        }
        None
    }

    /// The reply to `unique` is decided, and on record if it must be. Nobody has it yet.
    #[inline]
    pub(crate) fn effects_decided(&self, unique: u64) {
        if policy() == Policy::Transaction {
            self.image_settle(Some(unique & !UNIQUE_RESEND));
        }
    }

    pub(crate) fn tally(&self, tally: Tally) {
        self.area().count(tally);
    }
}

/// The index of the log for what is in `slot`.
pub(crate) fn log_of<'s>(
    shim: &'s Shim,
    slot: Option<Slot>,
) -> belay_effects::Log<'s, Arc<Mapping>> {
    match slot {
        Some(slot) => shim.area().log(slot),
        None => shim.area().own_log(),
    }
}

/// Messages that the kernel awaits no answer to.
const NOT_ANSWERED: belay_wire::OpcodeSet = belay_wire::OpcodeSet::new(&[
    Opcode::FORGET,
    Opcode::BATCH_FORGET,
    Opcode::INTERRUPT,
    Opcode::NOTIFY_REPLY,
]);
