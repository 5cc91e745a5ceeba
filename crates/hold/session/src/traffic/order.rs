//! Requests that come out differently in another order, under the policy `epoch`: those that take
//! inode numbers, and those that give some back. A daemon that works on two of them at once may
//! answer them in another order than it has carried them out in, and the op-log has the order of
//! the answers: after a crash the two would have each other's number. So the daemon is given one of
//! them at a time. (fuse2fs and its like carry out one request at a time anyway.)

use crate::flows::hide::state::Question;
use crate::flows::injection::Injection;
use crate::parts::scheduler::Wait;
use crate::parts::slots::Active;
use crate::session::Session;
use belay_memory::Memory;
use belay_wire::{Opcode, OpcodeSet, Request, Unique};

/// What takes or gives back an inode number.
const NUMBERS: OpcodeSet = OpcodeSet::new(&[
    Opcode::CREATE,
    Opcode::MKNOD,
    Opcode::MKDIR,
    Opcode::SYMLINK,
    Opcode::UNLINK,
    Opcode::RMDIR,
    Opcode::RENAME,
    Opcode::RENAME2,
]);

impl<M: Memory> Session<M> {
    /// Whether a request has to wait for another one to be answered.
    #[inline]
    pub(crate) fn awaits_turn(&self, request: &Request<'_>) -> bool {
        self.logged.is_kept()
            && NUMBERS.has(request.opcode())
            && self.is_numbering(Unique::unmarked(request.header.unique))
    }

    /// Whether the daemon has such a request other than `own`, or one of belay's own.
    pub(crate) fn is_numbering(&self, own: u64) -> bool {
        let removes =
            |asked: &Injection| matches!(asked, Injection::Hide(Question::RemoveHidden { .. }));
        let has = |active: &Active| {
            NUMBERS.has(active.opcode)
                && !active.sent
                && active.unique != own
                && !self.is_prepared(active.unique)
        };
        self.slots.iter().any(has) || self.questions.iter().any(removes)
    }

    /// Whether the request is on record, but the daemon does not have it yet.
    fn is_prepared(&self, unique: u64) -> bool {
        self.tasks.iter().any(|task| {
            Unique::unmarked(task.flow.unique()) == unique && task.wait != Wait::Reply(unique)
        })
    }
}
