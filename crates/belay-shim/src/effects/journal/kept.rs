//! Daemons that answer a WRITE and keep it to themselves, where nobody has said so: that is noted, so that it can be told if
//! they die.
//!
//! Only what is seen can be missed: where a daemon has changed something in a way that is not seen to be part of a request,
//! nothing is concluded any more.

use super::super::tag::{State, Tag};
use super::super::{Policy, policy};
use crate::start::Shim;
use belay_effects::area::{Area, Tally};
use belay_recorder::Memory;
use belay_recorder::control::{Control, flags, options};
use belay_wire::Opcode;
use libc::c_int;
use std::sync::atomic::Ordering::Relaxed;

/// Whether all that a daemon changes is seen to be part of its requests, as far as is known.
pub(crate) fn is_all_seen<M: Memory>(control: &Control<'_, M>, area: &Area<'_, M>) -> bool {
    !control.has(flags::UNSEEN)
        && area.tally(Tally::HandedOver) == 0
        && area.tally(Tally::Untagged) == 0
}

/// The daemon maps memory that is shared with something.
pub(crate) fn mapping(protection: c_int, kind: c_int, fd: c_int) {
    let shared = kind & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let written = fd >= 0 && protection & libc::PROT_WRITE != 0;
    if shared && written {
        unseen();
    }
}

/// The daemon changes, or may, what is not seen.
#[cold]
pub(crate) fn unseen() {
    if policy() == Policy::Journal
        && let Some(shim) = crate::start::shim()
        && !shim.control().has(flags::UNSEEN)
    {
        shim.control().raise(flags::UNSEEN);
    }
}

impl Shim {
    /// The calling thread answers a request that it has taken, with success.
    #[inline]
    pub(super) fn look_for_kept(&self, tag: &Tag) {
        if self.options & options::UNPROVEN == 0 {
            return;
        }
        match Opcode(tag.opcode) {
            Opcode::WRITE if !tag.acted && !tag.shared && tag.state == State::Logged => {
                self.kept(tag);
            }
            opcode => self.may_have_stored(tag.unique, opcode),
        }
    }

    #[cold]
    fn kept(&self, tag: &Tag) {
        let trusted = !self.handed_over.load(Relaxed)
            && is_all_seen(&self.control(), &self.area())
            && !self.area().log(tag.slot).is_opaque(tag.unique);
        if !trusted {
            return;
        }
        self.session().note_kept(tag.slot);
        if !self.control().has(flags::KEEPS_WRITES) {
            self.control().raise(flags::KEEPS_WRITES);
            self.tell();
        }
    }

    /// The daemon answers with success by which it may have stored a file.
    #[inline]
    pub(super) fn may_have_stored(&self, unique: u64, opcode: Opcode) {
        let stores = matches!(opcode, Opcode::FLUSH | Opcode::FSYNC | Opcode::RELEASE);
        if stores && self.control().has(flags::KEEPS_WRITES) {
            let mut session = self.session();
            if let Some(slot) = session.slot_in_hand(unique) {
                session.note_unkept(slot, opcode);
            }
        }
    }
}
