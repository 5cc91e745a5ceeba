//! Removing an extended attribute: whether it is there is asked before.

use crate::flows::reconcile::state::{Presence, Question};

use crate::flows::flow::Parked;
use crate::flows::step::Step;
use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_wire::abi::OutHeader;
use belay_wire::errno::ENODATA;
use belay_wire::{Opcode, Request, build};

impl<M: Memory> Session<M> {
    /// The kernel does not look whether an attribute is there before it has it removed. So that its
    /// absence after a crash means that it was removed, no request of the kernel's goes to a daemon
    /// without it: the daemon is asked by one of belay's own, and its answer is passed on.
    pub(crate) fn presence_step(
        &mut self,
        parked: &mut Parked,
        request: &Request<'_>,
    ) -> Option<Step> {
        if self.knows_presence() || request.opcode() != Opcode::REMOVEXATTR {
            return None;
        }
        let (id, name) = (self.node_id(request.header.nodeid)?, request.names().first?);
        let ids = self.questions.ids(id);
        match parked.presence {
            Presence::Unknown => {
                Some(Step::ask(build::getxattr(ids, name, 0), Question::ProbePresence))
            }
            Presence::Absent => {
                Some(Step::ask(build::removexattr(ids, name), Question::RemoveAbsent))
            }
            Presence::Answered(errno) => {
                let reply = match errno {
                    0 => build::reply_ok(request.header.unique),
                    errno => build::reply_error(request.header.unique, errno),
                };
                Some(if self.keeps_copies() {
                    self.answer(parked, &reply)
                } else {
                    Step::Answer(reply)
                })
            }
            Presence::There => None,
        }
    }

    /// Whether it need not be asked: nothing is left of a request without an answer, or the
    /// daemon's records tell.
    pub(crate) fn knows_presence(&self) -> bool {
        self.leaves_nothing() || self.life.keeps_records()
    }

    pub(crate) fn probed_presence(&mut self, id: u64, reply: &[u8]) {
        let absent = read::<OutHeader>(reply).is_some_and(|header| -header.error == ENODATA);
        let presence = if absent { Presence::Absent } else { Presence::There };
        self.with_parked(id, |parked| parked.presence = presence);
    }

    pub(crate) fn refused_absent(&mut self, id: u64, reply: &[u8]) {
        let errno = read::<OutHeader>(reply).map_or(ENODATA, |header| -header.error);
        self.with_parked(id, |parked| parked.presence = Presence::Answered(errno));
    }
}
