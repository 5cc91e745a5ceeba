//! What the daemon does for a request outside of itself, as the policy wants it.
//!
//! | module | answers |
//! | --- | --- |
//! | [`tag`] | which request a thread works on |
//! | [`journal`] | what becomes of an effectful call (policy `journal`) |
//! | [`probe`] | what there is to be seen of a call whose outcome is not known |
//! | [`policy`] | which policy there is, and what it keeps |
//! | [`transaction`] | what becomes of reads and writes of the image (policy `transaction`) |
//! | [`epoch`] | what becomes of the image, and of answers, until a checkpoint (policy `epoch`) |
//! | [`after`] | what a dead generation has left, at the start |
//!
//! Under the policy `reconcile` each interposed call costs two loads more than without belay, and a
//! word of the thread's own where it is looked for whether a daemon keeps something to itself.

pub(crate) mod after;
pub(crate) mod epoch;
pub(crate) mod journal;
pub(crate) mod policy;
mod probe;
pub(crate) mod tag;
pub(crate) mod transaction;

use crate::dying;
use crate::shim::{self, Shim};
use belay_effects::area::{Area, Tally};
use belay_recorder::Slot;
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::{Opcode, Unique, get_u64};
use libc::c_int;
use policy::Policy;
use std::sync::Arc;
use transaction::turn::Turn;

/// Whether it matters what the calling thread does outside of the daemon.
#[inline]
pub(crate) fn matters() -> bool {
    match shim::policy() {
        Policy::None => false,
        Policy::Watched => journal::is_looked_for(),
        _ => true,
    }
}

impl Shim {
    pub(crate) fn area(&self) -> Area<'_, Arc<Mapping>> {
        Area::new(self.host.memory(), *self.host.layout())
    }

    /// The calling thread is about to give `message` to the daemon. Gives the slot that it is on
    /// record in, under a policy.
    #[inline]
    pub(crate) fn effects_begin(
        &self,
        session: &Session<Arc<Mapping>>,
        message: &[u8],
    ) -> Option<Slot> {
        if matches!(self.policy, Policy::None) {
            None
        } else {
            self.effects_begin_request(session, message)
        }
    }

    fn effects_begin_request(
        &self,
        session: &Session<Arc<Mapping>>,
        message: &[u8],
    ) -> Option<Slot> {
        let unique = Unique::unmarked(get_u64(message, 8).unwrap_or(0));
        let slot = session.slot_in_hand(unique);
        if matches!(self.policy, Policy::Watched | Policy::Transaction(_)) {
            self.watch_begin(session, (unique, slot), message);
        }
        if matches!(self.policy, Policy::Watched) {
            return slot;
        }
        if let Some((unique, slot)) = session.sake_of(unique)
            && belay_wire::CHANGES.has(belay_host::opcode(message))
        {
            // A part of that request is done in another's name, so its own log does not tell all.
            self.area().log(slot).mark_opaque(unique);
        }
        match &self.policy {
            Policy::Journal => self.journal_begin(unique, slot, message),
            Policy::Epoch(_) => {
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
        if let Policy::Transaction(transactions) = &self.policy {
            transactions.assign(turn, slot);
        }
    }

    /// The calling thread has `message` for the daemon, and holds no lock of belay's. Gives its
    /// turn, once it has come.
    #[inline]
    pub(crate) fn effects_turn(&self, message: &[u8]) -> Turn {
        let unique = Unique::unmarked(get_u64(message, 8).unwrap_or(0));
        let Some(transaction) = self.transaction() else {
            return Turn { unique, number: None };
        };
        transaction.enter(unique, !NOT_ANSWERED.has(belay_host::opcode(message)))
    }

    /// It is not given to the daemon after all.
    #[inline]
    pub(crate) fn effects_leave(&self, turn: Turn) {
        if let Policy::Transaction(transactions) = &self.policy {
            transactions.leave(turn);
        }
    }

    /// The calling thread asks for more to do: what it did before, it did.
    #[inline]
    pub(crate) fn effects_rest(&self) {
        dying::prepare_thread();
        match &self.policy {
            Policy::None => {}
            Policy::Watched => self.watch_rest(),
            Policy::Transaction(_) => {
                if let Some(transaction) = self.transaction() {
                    transaction.settle(None);
                }
                self.watch_rest();
            }
            Policy::Epoch(_) => {
                if let Some(epoch) = self.epoch() {
                    epoch.rest();
                }
            }
            Policy::Journal => self.journal_rest(),
        }
    }

    /// The daemon has answered `unique`, by an error or not. `Some` is the error that its caller
    /// gets instead.
    #[inline]
    pub(crate) fn effects_replied(&self, unique: u64, failed: bool) -> Option<i32> {
        match &self.policy {
            Policy::Journal => return self.journal_replied(unique, failed),
            Policy::Watched | Policy::Transaction(_) => self.watched_replied(unique, failed),
            Policy::None | Policy::Epoch(_) => {}
        }
        None
    }

    /// The reply to `unique` is decided, and on record if it must be. Nobody has it yet.
    #[inline]
    pub(crate) fn effects_decided(&self, unique: u64) {
        if let Some(transaction) = self.transaction() {
            transaction.settle(Some(Unique::unmarked(unique)));
        }
    }

    /// The daemon has opened `fd`, by a call that empties nothing: it may be its image.
    pub(crate) fn image_opened(&self, fd: c_int, flags: c_int) {
        if let Some(transaction) = self.transaction() {
            transaction.opened(fd, flags);
        } else if let Some(epoch) = self.epoch() {
            epoch.opened(fd, flags);
        }
    }

    /// Counts what has happened.
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
