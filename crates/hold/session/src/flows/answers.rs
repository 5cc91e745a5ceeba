//! Requests that are answered without the daemon, and what is put on record of that.

use crate::flows::flow::Parked;
use crate::flows::step::Step;
use crate::message::Outgoing;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::{Counter, Decision};
use belay_wire::abi::OutHeader;
use belay_wire::{Request, Unique, build, put_u64};

impl<M: Memory> Session<M> {
    /// Answers a task's request as if the daemon had replied so, with all that follows from it.
    pub(crate) fn answer(&mut self, parked: &Parked, reply: &[u8]) -> Step {
        let message = parked.message().to_vec();
        if !self.record_start(&message, parked.slot) {
            return Step::Blocked;
        }
        let unique = parked.unique();
        let (Some((_, slot)), Some(header)) =
            (self.slots.find(Unique::unmarked(unique)), crate::message::read::<OutHeader>(reply))
        else {
            return Step::Done;
        };
        let opcode = parked.opcode();
        let body = || reply.get(size_of::<OutHeader>()..).unwrap_or_default().into();
        self.logged.set_answering(true);
        let outgoing = self.apply_reply(slot, opcode, &header, reply, body);
        self.logged.set_answering(false);
        match outgoing {
            Outgoing::Replace(message) => Step::Answer(message.as_bytes().to_vec()),
            Outgoing::ReplaceLong(message) => Step::Answer(message),
            _ => Step::Answer(reply.to_vec()),
        }
    }

    /// A request fails because of a crash, or since a checkpoint cannot be made: reported, and
    /// nothing else suffers.
    pub(crate) fn fail(&mut self, parked: &Parked, errno: i32) -> Step {
        if !parked.answered {
            self.count(Counter::Failed);
        }
        let why = if parked.waits.for_epoch.is_some() {
            "what was written could not be made safe"
        } else {
            "what it needs could not be restored"
        };
        self.report(parked, 0, errno, why);
        let reply = build::reply_error(parked.unique(), errno);
        self.answer(parked, &reply)
    }

    /// Puts a decision about a request on record.
    pub(crate) fn report(&self, parked: &Parked, row: u32, errno: i32, why: &str) {
        let Ok(request) = Request::parse(parked.message()) else { return };
        let (text, header) = (request.describe(), &request.header);
        self.control().decide(&Decision {
            generation: self.life.generation(),
            opcode: header.opcode,
            unique: Unique::unmarked(parked.unique()),
            node: header.nodeid,
            row,
            errno,
            text: format!("{text}: {why}"),
        });
    }

    /// Puts on record what became of an errand of belay's own.
    pub(crate) fn report_errand(&self, errand: &str, errno: i32, why: &str) {
        self.control().decide(&Decision {
            generation: self.life.generation(),
            opcode: 0,
            unique: 0,
            node: 0,
            row: 0,
            errno,
            text: format!("{errand}: {why}"),
        });
    }

    /// A recorded reply, under the unique that the kernel now uses.
    pub(crate) fn answer_recorded(&mut self, parked: &Parked) -> Option<Step> {
        let slot = parked.slot?;
        let mut reply = self.store.slot_recorded_reply(slot);
        if reply.len() < 16 {
            return None;
        }
        let _ = put_u64(&mut reply, 8, parked.unique());
        self.activate(Unique::unmarked(parked.unique()), slot);
        Some(Step::Answer(reply))
    }
}
