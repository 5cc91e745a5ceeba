//! Lookup counts. The kernel's count of a node spans generations; each daemon has its own.
//! A daemon is told to forget a node once, when the kernel forgets it wholly, and then as many
//! lookups as this daemon counted.

use crate::requests::Incoming;
use crate::session::Session;
use belay_recorder::Memory;
use belay_recorder::control::Counter;
use belay_wire::abi::ForgetOne;
use belay_wire::{Opcode, Request, put_u64};
use zerocopy::IntoBytes;

impl<M: Memory> Session<M> {
    pub(crate) fn on_forget(&mut self, message: &mut [u8]) -> Incoming {
        let Ok(request) = Request::parse(message) else { return Incoming::Deliver };
        if request.opcode() == Opcode::FORGET {
            let nlookup = request.body_as::<u64>().unwrap_or(0);
            let Some((id, count)) = self.forget(request.header.nodeid, nlookup) else {
                return Incoming::Taken;
            };
            let _ = put_u64(message, belay_wire::fields::NODEID_OFFSET, id);
            let _ = put_u64(message, 40, count);
            return Incoming::Deliver;
        }
        let items: Vec<ForgetOne> = request.forgets().map(|(_, item)| item).collect();
        let mut at = 48;
        let mut kept = 0u32;
        for item in items {
            let Some((nodeid, nlookup)) = self.forget(item.nodeid, item.nlookup) else { continue };
            let bytes = ForgetOne { nodeid, nlookup };
            let bytes = bytes.as_bytes();
            if let Some(place) = message.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
                at += bytes.len();
                kept += 1;
            }
        }
        if kept == 0 {
            return Incoming::Taken;
        }
        for (place, value) in [(0, at as u32), (40, kept)] {
            if let Some(word) = message.get_mut(place..place + 4) {
                word.copy_from_slice(&value.to_ne_bytes());
            }
        }
        Incoming::Deliver
    }

    /// The kernel gave up `nlookup` of its lookups of `key`. Gives what the daemon must forget.
    fn forget(&mut self, key: u64, nlookup: u64) -> Option<(u64, u64)> {
        let node = self.store.node_by_key(key)?;
        if node == belay_recorder::Node::ROOT {
            return None;
        }
        self.store.begin();
        let count = self.store.count(node).saturating_sub(nlookup);
        self.store.set_count(node, count);
        let mut told = None;
        let mut others = Vec::new();
        if count == 0 {
            if let Some(id) = self.store.bound(node, self.generation) {
                told = Some((id, self.store.daemon_count(node))).filter(|(_, count)| *count > 0);
                self.store.unbind(node);
            }
            self.store.release_unused(node, self.generation, &mut others);
        }
        self.store.commit();
        if count == 0 {
            self.count(Counter::NodesForgotten);
        }
        self.forget_later(others);
        told
    }
}
