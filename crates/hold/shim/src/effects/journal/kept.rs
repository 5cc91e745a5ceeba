//! Daemons that answer a change and keep it to themselves, where nobody has said so: that is noted,
//! so that it can be told if they die.
//!
//! Only what is seen can be missed: where a daemon has changed something in a way that is not seen
//! to be part of a request, nothing is concluded any more.

use super::super::policy::Policy;
use super::super::tag::{self, State, Tag};
use super::{About, Call, temporary};
use crate::descriptors;
use crate::real;
use crate::shim::{Shim, policy};
use belay_effects::Kind;
use belay_effects::area::{Area, Tally};
use belay_memory::Memory;
use belay_recorder::control::{Control, Flags, Options};
use belay_session::{LEAVES, STORES, Session};
use belay_sys::Mapping;
use belay_wire::Opcode;
use libc::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Whether all that a daemon changes is seen to be part of its requests, as far as is known.
pub(crate) fn is_all_seen<M: Memory>(control: &Control<'_, M>, area: &Area<'_, M>) -> bool {
    !control.has(Flags::UNSEEN)
        && area.tally(Tally::HandedOver) == 0
        && area.tally(Tally::Untagged) == 0
}

/// The most that is said to a pipe or a socket only to wake somebody up: an eventfd's count, one
/// byte of an event loop.
const WORD: u64 = 8;

/// Whether what a call has done is there when the daemon is not any more. A file without a name (a
/// temporary one that was removed, a memfd) dies with it, and so does one whose name was drawn at
/// random for this life; a word to a thread of its own does.
pub(super) fn lasts(call: &Call<'_>) -> bool {
    match call.about {
        About::File(fd) if call.kind == Kind::Send && call.length <= WORD => leads_away(fd),
        About::File(fd) | About::Offset(fd, _) | About::FileAttribute(fd, _) => is_lasting(fd),
        About::Name(_, path) | About::NameAttribute(path, ..) => !temporary::is_name(path),
        About::Names((_, one), (_, other)) | About::Link((_, one), (_, other)) => {
            !(temporary::is_name(one) && temporary::is_name(other))
        }
    }
}

/// Whether a connection leads to another machine, or may: what it takes to wake a thread goes
/// elsewhere.
#[cold]
fn leads_away(fd: c_int) -> bool {
    let mut family: libc::c_int = 0;
    let mut length = size_of_val(&family) as libc::socklen_t;
    let (at, room) = (&raw mut family, &raw mut length);
    // SAFETY: both are live, and `length` says how much may be written there; any number may be
    // asked for.
    let known =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, at.cast(), room) == 0 };
    known && family != libc::AF_UNIX
}

/// Whether a file is there when nobody has it open any more, and found by who comes later.
fn is_lasting(fd: c_int) -> bool {
    let look =
        || descriptors::stat_of(fd).is_none_or(|stat| stat.st_nlink > 0) && !temporary::is_open(fd);
    descriptors::is_lasting(fd, look)
}

/// What leaves the daemon by the calling thread's request is not seen: by a child, say.
pub(crate) fn left() {
    let tag = tag::get();
    if !tag.acted {
        tag::set(Tag { acted: true, ..tag });
    }
}

/// The daemon maps memory that is shared with something.
pub(crate) fn mapping(protection: c_int, kind: c_int, fd: c_int) {
    let shared = kind & libc::MAP_TYPE != libc::MAP_PRIVATE;
    let written = fd >= 0 && protection & libc::PROT_WRITE != 0;
    if shared && written && is_watching() && is_lasting(fd) {
        unseen();
    }
}

/// The daemon changes, or may, what is not seen.
#[cold]
pub(crate) fn unseen() {
    if is_watching()
        && let Some(shim) = crate::shim::shim()
        && !shim.control().has(Flags::UNSEEN)
    {
        shim.control().raise(Flags::UNSEEN);
    }
}

/// The daemon opens a stream of the C library's, with which it writes what is not seen. One that is
/// open since its start, and only written, is a log.
pub(crate) fn stream(mode: &[u8]) {
    let reads = mode.starts_with(b"r");
    let both = mode.contains(&b'+');
    if both || !reads && serves() {
        unseen();
    }
}

/// The daemon tells `fd` something by ioctl(2): a camera that is asked so stores files by it, a
/// file has the blocks of another.
pub(crate) fn told(fd: c_int) {
    if !is_watching() || !serves() {
        return;
    }
    let errno = real::errno();
    let kind = descriptors::stat_of(fd).map_or(0, |stat| stat.st_mode & libc::S_IFMT);
    real::set_errno(errno);
    match kind {
        libc::S_IFCHR | libc::S_IFBLK => unseen(),
        libc::S_IFREG | libc::S_IFDIR => left(),
        _ => {}
    }
}

/// Whether it is looked for what a daemon keeps.
fn is_watching() -> bool {
    matches!(policy(), Policy::Journal | Policy::Watched | Policy::Transaction(_))
}

/// Whether the daemon has come to the end of its start.
pub(super) fn serves() -> bool {
    crate::shim::shim().is_some_and(|shim| shim.host.is_ready())
}

impl Shim {
    /// The calling thread answers a request, with success.
    #[inline]
    pub(super) fn look_for_kept(&self, tag: &Tag) {
        if !self.options.intersects(Options::WATCHED | Options::LOSES_UNCONNECTED) {
            return;
        }
        let opcode = Opcode(tag.opcode);
        let nothing_left = || !tag.acted && self.is_watched(tag) && self.is_trusted(tag);
        if LEAVES.has(opcode) && nothing_left() {
            self.kept(tag);
        } else {
            self.left(tag.unique, opcode, nothing_left);
        }
    }

    /// Whether it matters of the thread's request that something of it leaves the daemon.
    #[inline]
    pub(super) fn is_watched(&self, tag: &Tag) -> bool {
        let opcode = Opcode(tag.opcode);
        self.options.contains(Options::WATCHED) && (LEAVES.has(opcode) || STORES.has(opcode))
    }

    /// Whether all that leaves the daemon by a request that it has taken is seen.
    fn is_trusted(&self, tag: &Tag) -> bool {
        let stores = tag.state == State::Plain && STORES.has(Opcode(tag.opcode));
        (matches!(tag.state, State::Logged | State::Watched) || stores)
            && !tag.shared
            && !self.handed_over.load(Relaxed)
            && is_all_seen(&self.control(), &self.area())
    }

    /// What the dead generation had begun is over: what it had sent may be lost.
    pub(crate) fn look_for_cut(&self, session: &mut Session<Arc<Mapping>>) {
        if self.options.contains(Options::LOSES_UNCONNECTED) {
            session.end_sent(self.control().take_cut());
            self.tell();
        }
    }

    #[cold]
    fn kept(&self, tag: &Tag) {
        let counts = self.host.session().note_kept(tag.slot);
        if counts && !self.control().has(Flags::KEEPS_WRITES) {
            self.control().raise(Flags::KEEPS_WRITES);
            self.tell();
        }
    }

    /// The daemon answers with success what may have stored a file (unless that `did_nothing`), or
    /// may have left something of it on its way.
    #[inline]
    pub(super) fn left(&self, unique: u64, opcode: Opcode, did_nothing: impl FnOnce() -> bool) {
        let sends = self.options.contains(Options::LOSES_UNCONNECTED);
        let matters =
            if self.options.contains(Options::WATCHED) && self.control().has(Flags::KEEPS_WRITES) {
                LEAVES.has(opcode) || STORES.has(opcode)
            } else {
                sends && (opcode == Opcode::WRITE || STORES.has(opcode))
            };
        if matters {
            self.note_left(unique, opcode, STORES.has(opcode) && did_nothing());
        }
    }

    #[cold]
    fn note_left(&self, unique: u64, opcode: Opcode, did_nothing: bool) {
        let mut session = self.host.session();
        let Some(slot) = session.slot_in_hand(unique) else { return };
        if self.options.contains(Options::LOSES_UNCONNECTED) && opcode == Opcode::WRITE {
            session.note_sent(slot);
        }
        if did_nothing {
            session.note_nothing_left(slot, opcode);
        } else {
            session.note_left(slot, opcode);
        }
    }
}
