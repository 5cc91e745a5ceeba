//! Opening a file that a dead generation had created for a CREATE without answering it: also one
//! whose own mode forbids that, which is widened for a moment.

use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_wire::OpenOut;
use belay_wire::abi::OutHeader;
use belay_wire::errno::{EACCES, EPERM};

/// How far opening a created file is whose own mode forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Widen {
    /// It opened, or was not tried yet.
    No,
    /// OPEN was refused.
    Needed,
    /// The mode is wider than it was.
    Done,
    /// The mode is back.
    Undone,
}

impl<M: Memory> Session<M> {
    pub(crate) fn opened_created(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        let open = reply.get(16..).and_then(read::<OpenOut>).filter(|_| errno == 0);
        let Some(task) = self.tasks.iter().find(|task| task.id == id).cloned() else { return };
        let refused = (errno == EPERM || errno == EACCES) && task.widen == Widen::No;
        if let (None, Some(entry), false) = (open, task.probed, refused) {
            self.forget_later(vec![(entry.nodeid, 1)]);
        }
        self.with_task(id, |task| match open {
            Some(open) => task.opened = Some(open),
            None if refused => task.widen = Widen::Needed,
            None => task.failed = Some(errno),
        });
    }

    pub(crate) fn widened_created(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        self.with_task(id, |task| match errno {
            0 => task.widen = Widen::Done,
            errno => task.failed = Some(errno),
        });
    }

    pub(crate) fn narrowed_created(&mut self, id: u64) {
        self.with_task(id, |task| task.widen = Widen::Undone);
    }
}
