//! Lookup counts. The kernel's count of a node spans generations; each daemon has its own.
//! A daemon is told to forget a node once, when the kernel forgets it wholly, and then as many
//! lookups as this daemon counted.

use crate::session::Session;
use crate::traffic::requests::Incoming;

use belay_memory::Memory;
use belay_recorder::Node;
use belay_wire::abi::ForgetOne;
use belay_wire::{Opcode, Request, put_u64};
use zerocopy::IntoBytes;

impl<M: Memory> Session<M> {
    pub(crate) fn on_forget(&mut self, message: &mut [u8]) -> Incoming {
        let Ok(request) = Request::parse(message) else { return Incoming::Deliver };
        if request.opcode() == Opcode::FORGET {
            let nlookup = request.body_as::<u64>().unwrap_or(0);
            let mut told = Vec::new();
            self.forget(request.header.nodeid, nlookup, &mut told);
            let ([(id, count)], true) = (&told[..], self.questions.is_empty()) else {
                self.forget_later(told);
                return Incoming::Taken;
            };
            let (id, count) = (*id, *count);
            let _ = put_u64(message, belay_wire::fields::NODEID_OFFSET, id);
            let _ = put_u64(message, 40, count);
            return Incoming::Deliver;
        }
        let items: Vec<ForgetOne> = request.forgets().map(|(_, item)| item).collect();
        let mut told = Vec::new();
        for item in &items {
            self.forget(item.nodeid, item.nlookup, &mut told);
        }
        if told.is_empty() || told.len() > items.len() || !self.questions.is_empty() {
            self.forget_later(told);
            return Incoming::Taken;
        }
        let mut at = 48;
        let kept = told.len() as u32;
        for (nodeid, nlookup) in told {
            let bytes = ForgetOne { nodeid, nlookup };
            let bytes = bytes.as_bytes();
            if let Some(place) = message.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
                at += bytes.len();
            }
        }
        for (place, value) in [(0, at as u32), (40, kept)] {
            if let Some(word) = message.get_mut(place..place + 4) {
                word.copy_from_slice(&value.to_ne_bytes());
            }
        }
        Incoming::Deliver
    }

    /// The kernel gave up `nlookup` of its lookups of `key`. Adds what the daemon must forget.
    fn forget(&mut self, key: u64, nlookup: u64, told: &mut Vec<(u64, u64)>) {
        let Some(node) = self.store.node_by_key(key).filter(|node| *node != Node::ROOT) else {
            return;
        };
        self.store.begin();
        let count = self.store.count(node).saturating_sub(nlookup);
        self.store.set_count(node, count);
        if count == 0 {
            // While a child or a handle still needs it, the daemon keeps it too: belay's own
            // requests may name it.
            self.store.release_unused(node, self.life.ids(), told);
        }
        self.store.commit();
    }
}
