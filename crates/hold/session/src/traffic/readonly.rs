//! What is answered without the daemon, by an error.
//!
//! Under every policy: writes through a handle that the daemon opens again for reading only, see
//! `restore`. Under the policy `epoch`:
//!
//! Read-only on the last checkpoint: what was acknowledged since cannot be done again, as daemons
//! die of it. What the checkpoint holds is shown; whatever would change something gets EROFS, and
//! no daemon hears of it.
//!
//! TMPFILE, always: the op-log knows files by their names, so what is written to one that has none
//! would be lost with the daemon. To the kernel it is a daemon that has no such request.

use crate::decision::Progress;
use crate::flows::checkpoint::state::SYNCS;
use crate::flows::flow::Parked;
use crate::flows::step::Step;
use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::SlotState;
use belay_recorder::control::Options;
use belay_wire::abi::{OpenIn, SetattrIn, SetattrValid};
use belay_wire::errno::{ENOSYS, EROFS};
use belay_wire::request::HEADER;
use belay_wire::{Opcode, OpcodeSet, Request, build, get_u64, handle_fields};

/// O_ACCMODE and O_TRUNC.
const WRITING: u32 = 3 | 0o1000;

/// What changes a file by its handle.
const WRITES_BY_HANDLE: OpcodeSet = OpcodeSet::new(&[
    Opcode::WRITE,
    Opcode::FALLOCATE,
    Opcode::SETATTR,
    Opcode::COPY_FILE_RANGE,
    Opcode::COPY_FILE_RANGE_64,
]);

impl<M: Memory> Session<M> {
    /// Whether nothing may be changed.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.life.has(Options::READ_ONLY)
    }

    /// To be called instead of [`Session::keep_log`], right after the session was attached: of what
    /// was in flight at the crash nothing is left.
    pub fn keep_no_log(&mut self) {
        for (_, request) in self.store.slot_requests() {
            if request.state == SlotState::Started {
                self.slots.know(request.unique, Progress::Untouched);
            }
        }
        if self.keeps_copies() {
            self.requeue_copies();
        }
    }

    /// By which error a request is answered that nobody carries out.
    pub(crate) fn forbidden(&self, request: &Request<'_>) -> Option<i32> {
        let opcode = request.opcode();
        if opcode == Opcode::TMPFILE && self.has_epochs() {
            return Some(ENOSYS);
        }
        // What it copies from may be stored, and be another, before it is done again. Callers read
        // and write then.
        let copies = matches!(opcode, Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64);
        if copies && self.buffers_files() {
            return Some(ENOSYS);
        }
        if let Some(errno) = self.refused(request) {
            return Some(errno);
        }
        let writes = || {
            opcode == Opcode::OPEN
                && read::<OpenIn>(request.body).is_some_and(|open| open.flags & WRITING != 0)
        };
        let changes = || request.changes() || SYNCS.has(opcode) || writes();
        (self.is_read_only() && changes()).then_some(EROFS)
    }

    /// Whether there may be something that is answered so.
    #[inline]
    pub(crate) fn forbids(&self) -> bool {
        self.is_read_only() || self.restored.has_read_only()
    }

    /// A write through a handle that the daemon has opened again for reading only.
    fn refused(&self, request: &Request<'_>) -> Option<i32> {
        if !self.restored.has_read_only() || !WRITES_BY_HANDLE.has(request.opcode()) {
            return None;
        }
        let sets_size = |set: SetattrIn| set.valid.contains(SetattrValid::SIZE);
        if request.opcode() == Opcode::SETATTR
            && !read::<SetattrIn>(request.body).is_some_and(sets_size)
        {
            return None;
        }
        handle_fields(request).iter().find_map(|at| {
            let handle =
                self.store.handle_by_key(get_u64(request.body, at.checked_sub(HEADER)?)?)?;
            self.restored.refusal(handle)
        })
    }

    /// Refuses it. What was done before, and whose answer is on record, is answered.
    pub(crate) fn forbid_step(
        &mut self,
        parked: &mut Parked,
        request: &Request<'_>,
    ) -> Option<Step> {
        let done = parked.resent.is_some_and(|resent| resent.progress == Progress::Replied);
        if done {
            return None;
        }
        let reply = build::reply_error(request.header.unique, self.forbidden(request)?);
        Some(self.answer(parked, &reply))
    }
}
