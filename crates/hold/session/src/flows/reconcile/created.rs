//! Opening a file that a dead generation had created for a CREATE without answering it: also one
//! whose own mode forbids that, which is widened for a moment.

use crate::flows::reconcile::state::Widen;
use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_wire::OpenOut;
use belay_wire::abi::OutHeader;
use belay_wire::errno::{EACCES, EPERM};

impl<M: Memory> Session<M> {
    pub(crate) fn opened_created(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        let open = reply.get(16..).and_then(read::<OpenOut>).filter(|_| errno == 0);
        let Some(probe) = self.parked(id).map(|parked| parked.probe) else { return };
        let refused = (errno == EPERM || errno == EACCES) && probe.widen == Widen::No;
        if let (None, Some(entry), false) = (open, probe.entry, refused) {
            self.forget_later(vec![(entry.nodeid, 1)]);
        }
        self.with_parked(id, |parked| match open {
            Some(open) => parked.probe.opened = Some(open),
            None if refused => parked.probe.widen = Widen::Needed,
            None => parked.failed = Some(errno),
        });
    }

    pub(crate) fn widened_created(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(5, |header| -header.error);
        self.with_parked(id, |parked| match errno {
            0 => parked.probe.widen = Widen::Done,
            errno => parked.failed = Some(errno),
        });
    }

    pub(crate) fn narrowed_created(&mut self, id: u64) {
        self.with_parked(id, |parked| parked.probe.widen = Widen::Undone);
    }
}
