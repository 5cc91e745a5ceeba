//! Requests of the kernel that are in somebody's hands, and the slots of the record that hold them.
//!
//! Invariants: a slot is in one place at a time: free, with a request that is not settled, left
//! over, or with whoever has claimed it. A slot whose reply is on its way may become free in the
//! record at any time; it is taken back by [`Slots::reap`].

use crate::decision::Progress;
use belay_memory::Memory;
use belay_recorder::{Slot, SlotState, Store};
use belay_wire::{Opcode, Shape, Unique};
use std::collections::HashMap;

/// A request that is not settled yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub(crate) unique: u64,
    pub(crate) slot: Slot,
    /// As in the slot; here so that most replies are settled without a look at it.
    pub(crate) opcode: Opcode,
    /// Its reply is on its way to the kernel, or will be without the session: the slot may become
    /// free at any time, and belongs to whoever has the reply.
    pub(crate) sent: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    free: Vec<Slot>,
    active: Vec<Active>,
    /// The latest request of the kernel that any daemon may know of.
    newest: u64,
    /// The reply to what was let through last may need no session, and is to be like this.
    expects: Option<Shape>,
    /// The slot of the reply that is to be written now.
    sending: Option<Slot>,
    /// Slots of the dead generation whose requests have not come back yet.
    leftovers: HashMap<u64, Slot>,
    /// How far the dead generation had come with requests that it had begun, where that is known.
    known: HashMap<u64, Progress>,
}

impl Slots {
    /// No slots yet. `known`: how far the dead generation had come with requests, as far as that is
    /// known.
    pub(crate) fn new(known: HashMap<u64, Progress>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Adds a slot that is free in the record.
    #[inline]
    pub(crate) fn add_free(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Takes a free slot, if there is one.
    #[inline]
    pub(crate) fn take_free(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Whether no slot is free.
    #[inline]
    pub(crate) fn are_exhausted(&self) -> bool {
        self.free.is_empty()
    }

    /// Frees a slot that holds nothing of use.
    pub(crate) fn discard<M: Memory>(&mut self, slot: Slot, store: &Store<M>) {
        store.slot_advance(slot, SlotState::Free);
        self.free.push(slot);
    }

    /// The kernel has made this request.
    #[inline]
    pub(crate) fn see(&mut self, unique: u64) {
        self.newest = self.newest.max(Unique::unmarked(unique));
    }

    /// The latest request of the kernel that any daemon may know of; 0 if none is known.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The daemon gets this request, which is on record in its slot.
    #[inline]
    pub(crate) fn begin(&mut self, unique: u64, slot: Slot, opcode: Opcode) {
        self.active.push(Active { unique, slot, opcode, sent: false });
    }

    /// Where an unsettled request is; good until one is begun or ended.
    #[inline]
    pub(crate) fn position(&self, unique: u64) -> Option<usize> {
        self.active.iter().rposition(|active| active.unique == unique)
    }

    /// The request at such a place.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Active> {
        self.active.get(index)
    }

    /// Where an unsettled request is, and its slot.
    #[inline]
    pub(crate) fn find(&self, unique: u64) -> Option<(usize, Slot)> {
        let index = self.position(unique)?;
        self.active.get(index).map(|active| (index, active.slot))
    }

    /// The requests that are not settled.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Active> {
        self.active.iter()
    }

    /// The request at this place is settled; its slot is free.
    #[inline]
    pub(crate) fn end<M: Memory>(&mut self, index: usize, store: &Store<M>) {
        let active = self.active.swap_remove(index);
        store.slot_free(active.slot);
        self.free.push(active.slot);
    }

    /// The slot's request is no longer in hand, and the slot belongs to the caller.
    pub(crate) fn withdraw(&mut self, slot: Slot) {
        self.active.retain(|active| active.slot != slot);
    }

    /// The reply to the request at this place is being written.
    #[inline]
    pub(crate) fn mark_sent(&mut self, index: usize) {
        if let Some(active) = self.active.get_mut(index) {
            active.sent = true;
        }
    }

    /// Whoever writes that reply is to say when it is written, see [`Self::take_sending`].
    #[inline]
    pub(crate) fn set_sending(&mut self, slot: Slot) {
        self.sending = Some(slot);
    }

    /// The slot of the reply that is being written, for who writes it.
    #[inline]
    pub(crate) fn take_sending(&mut self) -> Option<Slot> {
        self.sending.take()
    }

    /// Takes back the slots that were freed without the session.
    pub(crate) fn reap<M: Memory>(&mut self, store: &Store<M>) {
        let mut index = self.active.len();
        while let Some(before) = index.checked_sub(1) {
            index = before;
            let free = self
                .active
                .get(index)
                .is_some_and(|active| active.sent && store.slot_is_free(active.slot));
            if free {
                self.free.push(self.active.swap_remove(index).slot);
            }
        }
    }

    /// What the reply to the request that was begun last is to be like, if it may need no session.
    #[inline]
    pub(crate) fn expect(&mut self, shape: Option<Shape>) {
        self.expects = shape;
    }

    /// Hands on the request that was begun last, if its reply may need no session. `expect` says
    /// whether somebody else settles it from now on.
    #[inline]
    pub(crate) fn let_go(&mut self, expect: impl FnOnce(&Active, Shape) -> Option<bool>) {
        if let Some(shape) = self.expects.take()
            && let Some(active) = self.active.last_mut()
            && let Some(sent) = expect(active, shape)
        {
            active.sent = sent;
        }
    }

    /// The dead generation had this request in that slot.
    pub(crate) fn leave(&mut self, unique: u64, slot: Slot) {
        self.leftovers.insert(unique, slot);
    }

    /// That request has come back: the slot is the caller's.
    pub(crate) fn take_leftover(&mut self, unique: u64) -> Option<Slot> {
        self.leftovers.remove(&unique)
    }

    /// Whether a slot is the dead generation's.
    pub(crate) fn is_leftover(&self, slot: Slot) -> bool {
        self.leftovers.values().any(|left| *left == slot)
    }

    /// Whether the dead generation had this very request in that slot.
    pub(crate) fn is_left_in(&self, unique: u64, slot: Slot) -> bool {
        self.leftovers.get(&unique) == Some(&slot)
    }

    /// What the dead generation had, in order of issue.
    pub(crate) fn leftovers(&self) -> Vec<(u64, Slot)> {
        let mut left: Vec<_> =
            self.leftovers.iter().map(|(unique, slot)| (*unique, *slot)).collect();
        left.sort_unstable_by_key(|(unique, _)| *unique);
        left
    }

    /// What has not come back will not: its slots are free.
    pub(crate) fn discard_leftovers<M: Memory>(&mut self, store: &Store<M>) {
        for (_, slot) in std::mem::take(&mut self.leftovers) {
            self.discard(slot, store);
        }
    }

    /// The dead generation had come so far with a request that it had begun.
    pub(crate) fn know(&mut self, unique: u64, progress: Progress) {
        self.known.insert(unique, progress);
    }

    /// How far that is, if it is known; asked once.
    pub(crate) fn take_known(&mut self, unique: u64) -> Option<Progress> {
        self.known.remove(&unique)
    }
}
