//! Daemons that keep records of what they have done (policy `records`).
//!
//! A successor is asked for the record of a request that was in flight, see [`belay_wire::record`].
//! If there is none, nothing of the request has happened.

use crate::decision::Finding;
use crate::flows::flow::Parked;
use crate::flows::reconcile::state::Question;
use crate::flows::step::Step;
use crate::message::read;
use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::{MAX_REPLY, Node};
use belay_wire::abi::OutHeader;
use belay_wire::{CHANGES, Request, Unique, build, record};

impl<M: Memory> Session<M> {
    /// Whether the daemon's own records tell whether a request has happened.
    pub(crate) fn is_recorded(&self, request: &Request<'_>) -> bool {
        self.life.keeps_records() && CHANGES.has(request.opcode())
    }

    /// Asks for what the daemon's records say of a request.
    pub(crate) fn ask_record(&mut self, request: &Request<'_>) -> Step {
        let Some(root) = self.store.bound(Node::ROOT, self.life.ids()) else {
            return Step::Blocked;
        };
        let name = record::name_of(Unique::unmarked(request.header.unique));
        let ids = self.questions.ids(root);
        let message = build::getxattr(ids, name.as_bytes(), MAX_REPLY as u32);
        Step::ask(message, Question::ProbeRecord)
    }

    pub(crate) fn probed_record(&mut self, id: u64, reply: &[u8]) {
        let Some(parked) = self.parked(id) else { return };
        let probe = parked.probe;
        let is_there = read::<OutHeader>(reply).is_some_and(|header| header.error == 0);
        let finding = if is_there { Finding::Done } else { Finding::NotDone };
        if is_there {
            let answer = reply.get(size_of::<OutHeader>()..).unwrap_or_default().to_vec();
            self.with_parked(id, |parked| parked.record = Some(answer));
        }
        self.found(id, finding, probe);
    }

    /// The answer that is in the daemon's records.
    pub(crate) fn answer_from_record(&mut self, parked: &Parked, unique: u64) -> Option<Step> {
        let answer = parked.record.as_ref()?;
        Some(self.answer(parked, &build::reply(unique, answer)))
    }
}
