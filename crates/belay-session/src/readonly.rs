//! Read-only on the last checkpoint: what was acknowledged since cannot be done again, as daemons die of it. What the
//! checkpoint holds is shown; whatever would change something gets EROFS, and no daemon hears of it.

use crate::checkpoint::SYNCS;
use crate::decision::Progress;
use crate::logged::CHANGES;
use crate::message::read;
use crate::session::Session;
use crate::task::{Step, Task};
use belay_recorder::control::options;
use belay_recorder::{Memory, SlotState};
use belay_wire::abi::OpenIn;
use belay_wire::{Opcode, Request, build};

const EROFS: i32 = 30;
/// O_ACCMODE and O_TRUNC.
const WRITING: u32 = 3 | 0o1000;

impl<M: Memory> Session<M> {
    /// Whether nothing may be changed.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.options & options::READ_ONLY != 0
    }

    /// To be called instead of [`Session::keep_log`], right after the session was attached: of what was in flight at the
    /// crash nothing is left.
    pub fn keep_no_log(&mut self) {
        for (_, request) in self.store.slot_requests() {
            if request.state == SlotState::Started {
                self.known.insert(request.unique, Progress::Untouched);
            }
        }
    }

    /// Whether a request is one that nobody carries out.
    pub(crate) fn is_forbidden(&self, request: &Request<'_>) -> bool {
        let opcode = request.opcode();
        let writes = || {
            opcode == Opcode::OPEN
                && read::<OpenIn>(request.body).is_some_and(|open| open.flags & WRITING != 0)
        };
        self.is_read_only()
            && (CHANGES.has(opcode) || SYNCS.has(opcode) || opcode == Opcode::TMPFILE || writes())
    }

    /// Refuses it. What was done before, and whose answer is on record, is answered.
    pub(crate) fn forbid_step(&mut self, task: &mut Task, request: &Request<'_>) -> Option<Step> {
        let done = task.resent.is_some_and(|resent| resent.progress == Progress::Replied);
        if done || !self.is_forbidden(request) {
            return None;
        }
        let reply = build::reply_error(request.header.unique, EROFS);
        Some(self.answer(task, &reply))
    }
}
