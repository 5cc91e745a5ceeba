//! Requests that are answered without the daemon, and what is put on record of that.

use crate::flows::task::{Step, Task};
use crate::message::Outgoing;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::control::{Counter, Decision};
use belay_wire::abi::OutHeader;
use belay_wire::{Request, UNIQUE_RESEND, build, put_u64};

impl<M: Memory> Session<M> {
    /// Answers a task's request as if the daemon had replied so, with all that follows from it.
    pub(crate) fn answer(&mut self, task: &mut Task, reply: &[u8]) -> Step {
        let message = task.message().to_vec();
        if !self.record_start(&message, task.slot) {
            return Step::Blocked;
        }
        let unique = task.unique();
        let (Some((_, slot)), Some(header)) =
            (self.slots.find(unique & !UNIQUE_RESEND), crate::message::read::<OutHeader>(reply))
        else {
            return Step::Done;
        };
        let opcode = task.opcode();
        let body = || reply.get(size_of::<OutHeader>()..).unwrap_or_default().into();
        self.logged.set_answering(true);
        let outgoing = self.effects(slot, opcode, &header, reply, body);
        self.logged.set_answering(false);
        match outgoing {
            Outgoing::Replace(message) => Step::Answer(message.as_bytes().to_vec()),
            Outgoing::ReplaceLong(message) => Step::Answer(message),
            _ => Step::Answer(reply.to_vec()),
        }
    }

    /// A request fails because of a crash, or since a checkpoint cannot be made: reported, and nothing else suffers.
    pub(crate) fn fail(&mut self, task: &mut Task, errno: i32) -> Step {
        if !task.answered {
            self.count(Counter::Failed);
        }
        let why = if task.awaits.is_some() {
            "what was written could not be made safe"
        } else {
            "what it needs could not be restored"
        };
        self.report(task, 0, errno, why);
        let reply = build::reply_error(task.unique(), errno);
        self.answer(task, &reply)
    }

    /// Puts a decision on record.
    pub(crate) fn report(&self, task: &Task, row: u32, errno: i32, why: &str) {
        let (text, opcode, node) = match Request::parse(task.message()) {
            Ok(request) => (request.describe(), request.header.opcode, request.header.nodeid),
            Err(_) => (format!("{:?}", task.job), 0, 0),
        };
        self.control().decide(&Decision {
            generation: self.life.generation(),
            opcode,
            unique: task.unique() & !UNIQUE_RESEND,
            node,
            row,
            errno,
            text: format!("{text}: {why}"),
        });
    }

    /// A recorded reply, under the unique that the kernel now uses.
    pub(crate) fn answer_recorded(&mut self, task: &Task) -> Option<Step> {
        let slot = task.slot?;
        let mut reply = self.store.slot_recorded_reply(slot);
        if reply.len() < 16 {
            return None;
        }
        let _ = put_u64(&mut reply, 8, task.unique());
        self.activate(task.unique() & !UNIQUE_RESEND, slot);
        Some(Step::Answer(reply))
    }
}
