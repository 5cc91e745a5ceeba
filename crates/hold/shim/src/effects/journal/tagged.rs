//! Which calls belong to which request: when its log is begun and ended, and when calls cannot be
//! told apart any more, so that no journal is to be trusted.

use super::super::tag::{self, State, Tag};
use crate::shim::Shim;
use belay_effects::area::Tally;
use belay_effects::{Cursor, Kind};
use belay_recorder::Slot;
use belay_wire::abi::{InHeader, WriteIn};
use belay_wire::{CHANGES, Opcode};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// Where in the message of a WRITE its offset is.
const WRITE_OFFSET: usize = size_of::<InHeader>() + offset_of!(WriteIn, offset);

impl Shim {
    /// The calling thread is about to give a request to the daemon.
    pub(in crate::effects) fn journal_begin(
        &self,
        unique: u64,
        slot: Option<Slot>,
        message: &[u8],
    ) {
        let opcode = belay_host::opcode(message);
        // Of an OPEN or CREATE.
        let asks_for = |flag| {
            let flags = message.get(40..44).and_then(|bytes| bytes.try_into().ok());
            flags.map_or(0, i32::from_ne_bytes) & flag != 0
        };
        let changes = CHANGES.has(opcode) || (opcode == Opcode::OPEN && asks_for(libc::O_TRUNC));
        let Some(slot) = slot.filter(|_| changes) else {
            tag::set(Tag { unique, opcode: opcode.0, state: State::Plain, ..Tag::IDLE });
            return;
        };
        let log = self.area().log(slot);
        let state = if log.unique() == unique { State::Replaying } else { State::Logged };
        match state {
            State::Replaying => Cursor::START.store(&log),
            _ => log.begin(unique),
        }
        if self.handed_over.load(Relaxed) {
            log.mark_opaque(unique);
        }
        let appends = opcode == Opcode::CREATE && asks_for(libc::O_APPEND);
        let asked = match opcode {
            Opcode::WRITE => belay_wire::get_u64(message, WRITE_OFFSET).unwrap_or(u64::MAX),
            Opcode::SETATTR => u64::MAX,
            _ => 0,
        };
        tag::set(Tag { unique, slot, opcode: opcode.0, state, appends, asked, ..Tag::IDLE });
    }

    /// The daemon has answered `unique`, by an error or not. `Some` is the error that its caller
    /// gets instead.
    pub(crate) fn journal_replied(&self, unique: u64, failed: bool) -> Option<i32> {
        let tag = tag::get();
        if tag.unique != unique {
            self.answered_elsewhere(unique, failed);
            return None;
        }
        if !failed {
            self.look_for_kept(&tag);
        }
        let error = match tag.state {
            State::Diverged => Some(libc::EIO),
            _ if tag.shared && self.area().log(tag.slot).is_diverged(unique) => Some(libc::EIO),
            State::Replaying => self.cut_short(tag, failed),
            _ => None,
        };
        // What the thread does from now on it does not do for this request, whose slot may be
        // another's at any time.
        tag::clear();
        error
    }

    /// A request that is done again is answered: before it has done what it had done before?
    fn cut_short(&self, tag: Tag, failed: bool) -> Option<i32> {
        let log = self.area().log(tag.slot);
        let cursor = Cursor::load(&log);
        if cursor.is_done(&log) || !failed && cursor.may_end(&log) {
            return None;
        }
        let left = cursor.expected(&log).map_or("something else", Kind::name);
        self.diverged(tag, &format!("is answered before the {left} that it made before"));
        Some(libc::EIO)
    }

    /// The calling thread asks for more to do.
    #[inline]
    pub(in crate::effects) fn journal_rest(&self) {
        let tag = tag::get();
        if matches!(tag.state, State::Logged | State::Replaying | State::Diverged) && !tag.shared {
            self.void_all(); // and has not answered: somebody else is to
        }
        tag::clear();
    }

    /// Requests are handed between threads in a way that cannot be seen: no journal is to be
    /// trusted.
    #[cold]
    fn void_all(&self) {
        self.tally(Tally::HandedOver);
        self.handed_over.store(true, Relaxed);
        self.void();
    }

    /// Whatever is in the daemon's hands may have done what its journal does not tell. Gives
    /// whether anything is that changes something.
    fn void(&self) -> bool {
        let session = self.host.session();
        let mut any = false;
        for (unique, slot, opcode) in session.in_hand() {
            if CHANGES.has(opcode) {
                self.area().log(slot).mark_opaque(unique);
                any = true;
            }
        }
        any
    }

    /// A thread answers a request that another one took: what it did for it was not logged.
    #[cold]
    fn answered_elsewhere(&self, unique: u64, failed: bool) {
        let session = self.host.session();
        let opcode = session.opcode_in_hand(unique);
        drop(session);
        if let Some(opcode) = opcode.filter(|_| !failed) {
            self.left(unique, opcode, || false);
        }
        if opcode.is_some_and(|opcode| CHANGES.has(opcode)) {
            self.void_all();
        }
    }

    /// A thread without a request makes an effectful call: it may do so for any request that is
    /// under way, whose journals are of no use then.
    #[cold]
    pub(super) fn untagged(&self) {
        if !self.host.is_ready() {
            return; // the daemon starts
        }
        super::unseen();
        if self.void() {
            self.tally(Tally::Untagged);
        }
    }

    /// A thread that was started for a request has outlived it.
    pub(super) fn is_over(&self, tag: &Tag) -> bool {
        tag.shared && (!self.is_in_hand(tag) || self.area().log(tag.slot).unique() != tag.unique)
    }

    fn is_in_hand(&self, tag: &Tag) -> bool {
        self.host.session().slot_in_hand(tag.unique) == Some(tag.slot)
    }
}
