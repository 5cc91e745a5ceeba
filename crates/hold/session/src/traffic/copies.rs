//! Requests where the kernel cannot send them again: they are read into copies, which outlive the
//! daemon.

use crate::session::Session;
use belay_memory::Memory;
use belay_recorder::Slot;
use belay_wire::{Opcode, Request, Unique, get_u64};

impl<M: Memory> Session<M> {
    /// Claims a slot into whose copy the shim reads the next request. `None` if all are in use.
    pub fn claim_slot(&mut self) -> Option<Slot> {
        let slot = self.slots.take_free()?;
        self.store.slot_prepare(slot);
        Some(slot)
    }

    /// A slot for a request that was read before it was known that requests are copied: by a thread
    /// that slept in its read when INIT came, which tells. It is copied now. `None` if all slots
    /// are in use.
    #[cold]
    pub fn copy_late(&mut self, message: &[u8]) -> Option<Slot> {
        let slot = self.claim_slot()?;
        if !self.store.slot_copy_in(slot, message) {
            self.unclaim(Some(slot));
            return None;
        }
        Some(slot)
    }

    /// Gives back a claimed slot into which nothing was read.
    pub fn unclaim(&mut self, slot: Option<Slot>) {
        if let Some(slot) = slot {
            self.slots.discard(slot, &self.store);
        }
    }

    /// A read into a copy that the dead generation may or may not have finished.
    pub(crate) fn sort_unfinished_read(&mut self, slot: Slot) {
        let head = self.store.slot_copy_bytes(slot, 40);
        let unique = get_u64(&head, 8).unwrap_or(0);
        let opcode = u32::from_ne_bytes(
            head.get(4..8).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default(),
        );
        let answered = !matches!(
            Opcode(opcode),
            Opcode::FORGET | Opcode::BATCH_FORGET | Opcode::INTERRUPT | Opcode::NOTIFY_REPLY
        );
        if unique != 0 && answered && opcode != Opcode::INIT.0 {
            // The daemon cannot have seen it: a slot is filled before a request is handed on.
            self.slots.leave(Unique::unmarked(unique), slot);
        } else {
            self.slots.discard(slot, &self.store);
        }
    }

    /// Where requests are copied: everything the dead generation had comes back from the copies. To
    /// be called when the locks that are to be taken again are parked: one of these requests may
    /// want what another owner held.
    pub(crate) fn requeue_copies(&mut self) {
        for (_, slot) in self.slots.leftovers() {
            let head = self.store.slot_copy_bytes(slot, 8);
            let length =
                head.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
                    as usize;
            let message = self.store.slot_copy_bytes(slot, length);
            let message = self.life.dialect().widen_request(&message).unwrap_or(message);
            if Request::parse(&message).is_ok() {
                self.park_resent(message, Some(slot));
            }
        }
    }
}
