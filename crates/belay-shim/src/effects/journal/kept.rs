//! Daemons that answer a WRITE and keep it to themselves, where nobody has said so: that is noted, so that it can be told if
//! they die.
//!
//! Only what is seen can be missed: where a daemon has changed something in a way that is not seen to be part of a request,
//! nothing is concluded any more.

use super::super::tag::{State, Tag};
use super::super::{Policy, policy};
use super::{About, Call};
use crate::descriptors;
use crate::start::Shim;
use belay_effects::Kind;
use belay_effects::area::{Area, Tally};
use belay_recorder::Memory;
use belay_recorder::control::{Control, flags, options};
use belay_session::Session;
use belay_sys::Mapping;
use belay_wire::Opcode;
use libc::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Whether all that a daemon changes is seen to be part of its requests, as far as is known.
pub(crate) fn is_all_seen<M: Memory>(control: &Control<'_, M>, area: &Area<'_, M>) -> bool {
    !control.has(flags::UNSEEN)
        && area.tally(Tally::HandedOver) == 0
        && area.tally(Tally::Untagged) == 0
}

/// The most that is said to a pipe or a socket only to wake somebody up: an eventfd's count, one byte of an event loop.
const WORD: u64 = 8;

/// Whether what a call has done is there when the daemon is not any more. A file without a name (a temporary one that was
/// removed, a memfd) dies with it; a word to a thread of its own does.
pub(super) fn lasts(call: &Call) -> bool {
    match call.about {
        About::File(_) if call.kind == Kind::Send => call.length > WORD,
        About::File(fd) | About::FileAttribute(fd, _) => is_lasting(fd),
        _ => true,
    }
}

/// Whether a file is there when nobody has it open any more.
fn is_lasting(fd: c_int) -> bool {
    descriptors::is_lasting(fd, || descriptors::stat_of(fd).is_none_or(|stat| stat.st_nlink > 0))
}

/// The daemon maps memory that is shared with something.
pub(crate) fn mapping(protection: c_int, kind: c_int, fd: c_int) {
    let shared = kind & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let written = fd >= 0 && protection & libc::PROT_WRITE != 0;
    if shared && written && policy() == Policy::Journal && is_lasting(fd) {
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
        if self.is_watched(tag) && !tag.acted && !tag.shared && tag.state == State::Logged {
            self.kept(tag);
        }
        self.look_for_stored(tag.unique, Opcode(tag.opcode));
    }

    /// Whether it matters of the thread's request that something of it leaves the daemon.
    #[inline]
    pub(super) fn is_watched(&self, tag: &Tag) -> bool {
        self.options & options::WATCHED != 0 && tag.opcode == Opcode::WRITE.0
    }

    /// What the dead generation had begun is over: what it had sent may be lost.
    pub(crate) fn look_for_cut(&self, session: &mut Session<Arc<Mapping>>) {
        if self.options & options::LOSES_UNCONNECTED != 0 {
            session.end_sent(self.control().take_cut());
            self.tell();
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

    /// The daemon answers with success what may have stored a file, or may have left something of it on its way.
    #[inline]
    pub(super) fn look_for_stored(&self, unique: u64, opcode: Opcode) {
        if self.options & (options::WATCHED | options::LOSES_UNCONNECTED) == 0 {
            return;
        }
        let sends = self.options & options::LOSES_UNCONNECTED != 0;
        let stores = matches!(opcode, Opcode::FLUSH | Opcode::FSYNC | Opcode::RELEASE)
            && (sends || self.control().has(flags::KEEPS_WRITES));
        if !(stores || sends && opcode == Opcode::WRITE) {
            return;
        }
        let mut session = self.session();
        match session.slot_in_hand(unique) {
            Some(slot) if stores => session.note_unkept(slot, opcode),
            Some(slot) => session.note_sent(slot),
            None => {}
        }
    }
}
