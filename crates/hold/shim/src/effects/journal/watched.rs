//! The same as [`super::kept`] under the policies `reconcile` and `transaction`, where there is no
//! journal: which request a thread works on, and whether something of it has left the daemon.
//!
//! What that costs a request: its tag is set and read, in memory of the thread's own. A call of the
//! daemon's is looked at until one that lasts was seen for the request. Whether what a descriptor
//! leads to lasts is asked of the kernel once for each (fstat(2)): nothing else tells a store from
//! a cache without a name. There is no lock but where a daemon does keep something, or has a
//! connection that loses what is under way; then for the requests that change that.

use super::super::tag::{self, State, Tag};
use super::{Call, kept};
use crate::real;
use crate::shim::{Shim, policy};
use belay_recorder::Slot;
use belay_recorder::control::{Flags, Options};
use belay_session::{LEAVES, Phase, STORES, Session};
use belay_sys::Mapping;
use std::sync::Arc;

/// Whether it matters what the calling thread does.
#[inline]
pub(crate) fn is_looked_for() -> bool {
    let tag = tag::get();
    match tag.state {
        State::Watched => !tag.acted,
        state => state == State::Idle,
    }
}

/// The calling thread makes an effectful call.
#[inline]
pub(super) fn note<'c>(call: impl FnOnce() -> Call<'c>) {
    if is_looked_for() {
        changes(|| kept::lasts(&call()));
    }
}

/// The calling thread changes the image.
#[inline]
pub(crate) fn note_image() {
    if policy().is_transaction() && is_looked_for() {
        changes(|| true);
    }
}

fn changes(lasts: impl FnOnce() -> bool) {
    if tag::get().state == State::Idle {
        // It may do so for any request that is under way.
        if kept::serves() {
            kept::unseen();
        }
        return;
    }
    // Of what belay looks at besides the daemon sees nothing: its errno stays.
    let errno = real::errno();
    if lasts() {
        kept::left();
    }
    real::set_errno(errno);
}

impl Shim {
    /// The calling thread is about to give a request to the daemon.
    pub(in crate::effects) fn watch_begin(
        &self,
        session: &Session<Arc<Mapping>>,
        (unique, slot): (u64, Option<Slot>),
        message: &[u8],
    ) {
        let opcode = belay_host::opcode(message);
        // What comes again after a crash may be done already.
        let is_new = session.phase() != Phase::Settling;
        let (state, slot) = match slot {
            Some(slot) if STORES.has(opcode) || is_new && LEAVES.has(opcode) => {
                (State::Watched, slot)
            }
            _ => (State::Plain, Slot(0)),
        };
        tag::set(Tag { unique, slot, opcode: opcode.0, state, ..Tag::IDLE });
    }

    /// The daemon has answered `unique`, by an error or not.
    #[inline]
    pub(in crate::effects) fn watched_replied(&self, unique: u64, failed: bool) {
        let tag = tag::get();
        if tag.unique != unique {
            if !failed {
                self.answered_by_another(unique);
            }
            return;
        }
        if !failed && tag.state == State::Watched {
            self.look_for_kept(&tag);
        }
        tag::clear();
    }

    /// A thread answers a request that another one took: something may have left the daemon by it.
    fn answered_by_another(&self, unique: u64) {
        if !self.options.contains(Options::LOSES_UNCONNECTED)
            && !self.control().has(Flags::KEEPS_WRITES)
        {
            return; // nothing is to be taken back
        }
        let opcode = self.host.session().opcode_in_hand(unique);
        if let Some(opcode) = opcode {
            self.left(unique, opcode, || false);
        }
    }

    /// The calling thread asks for more to do.
    #[inline]
    pub(in crate::effects) fn watch_rest(&self) {
        let tag = tag::get();
        if tag.state == State::Watched && LEAVES.has(belay_wire::Opcode(tag.opcode)) {
            kept::unseen(); // and has not answered: somebody else is to
        }
        tag::clear();
    }
}
