//! The log: which transactions there are, in their order.
//!
//! A slot is one word. For transaction *n*, which has slot *n* modulo their number, it says in this
//! order: that it is free for *n*, and then in which cell the record of *n* begins. The store that
//! turns the one into the other publishes the transaction, and gives it its number: whoever fails
//! at it, because somebody else was faster, looks at what that one has done, and tries the next
//! one. So a publisher that dies leaves no gap, and knows all that is before what it publishes.

use crate::layout::{
    BLOCKS, DURABLE, DURABLE_EPOCH, LOGGED, PAIRS, RESERVE, SEALED, SEALED_EPOCH, TRIMMED,
};
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Credit, Room};

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// It is free for this transaction.
    Free,
    /// The transaction is published; its record begins in this cell.
    Published(u32),
    /// It is another transaction's: an earlier one, whose checkpoint is not there yet, or a later
    /// one.
    Other,
}

/// No number comes near this: what says so is wrong.
pub(crate) const MOST: u64 = 1 << 62;

const NONE: u64 = 0xffff_ffff;
const ROUND: u32 = 32;

impl<M: Memory> Shared<M> {
    fn slot_of(&self, number: u64) -> (usize, u64) {
        let slots = u64::from(self.layout.capacity.slots.max(1));
        // What a memory of zeros says must not be taken for a slot: the round counts from 1.
        (self.layout.slots + (number % slots) as usize, (number / slots + 1) & 0xffff_ffff)
    }

    /// Makes a memory of zeros an empty log, whose first transaction has that number: what is
    /// before it is in the checkpoint of that epoch, after which the layer below has that room.
    /// Nothing else may be done before.
    pub fn initialize(&self, durable_epoch: u64, first: u64, room: &Room) {
        for number in first..first + u64::from(self.layout.capacity.slots) {
            self.free_slot(number);
        }
        for word in [DURABLE, TRIMMED, LOGGED] {
            self.memory.store(word, first);
        }
        self.set_room(room);
        self.memory.store(DURABLE_EPOCH, durable_epoch);
    }

    fn set_room(&self, room: &Room) {
        self.memory.store(BLOCKS, room.credit.blocks);
        self.memory.store(PAIRS, room.credit.pairs);
        self.memory.store(RESERVE, room.reserve());
    }

    /// What could be taken of the layer below at the last checkpoint, or a later one, and what of
    /// it is for transactions that take away. To be asked after what is durable.
    pub(crate) fn room(&self) -> (Credit, Credit) {
        let [blocks, pairs, reserve] = [BLOCKS, PAIRS, RESERVE].map(|word| self.memory.load(word));
        (Credit { blocks, pairs }, Credit { blocks: reserve, pairs: reserve / 2 })
    }

    /// Up to which transaction everything but data is in the intent log, or durable.
    pub(crate) fn logged(&self) -> u64 {
        self.memory.load(LOGGED).max(self.durable())
    }

    /// The number behind the last one that there can be.
    pub(crate) fn end(&self) -> u64 {
        self.durable().saturating_add(u64::from(self.layout.capacity.slots))
    }

    pub(crate) fn set_logged(&self, number: u64) {
        self.memory.store(LOGGED, number);
    }

    fn free_slot(&self, number: u64) {
        let (at, round) = self.slot_of(number);
        self.memory.store(at, round << ROUND | NONE);
    }

    /// What the slot of a transaction says.
    pub(crate) fn slot(&self, number: u64) -> Slot {
        let (at, round) = self.slot_of(number);
        let word = self.memory.load(at);
        match (word >> ROUND == round, word & NONE) {
            (false, _) => Slot::Other,
            (true, NONE) => Slot::Free,
            (true, frame) => Slot::Published(frame as u32),
        }
    }

    /// Publishes the record that begins in `frame` as that transaction, and no other; gives what
    /// its slot said: [`Slot::Free`] if it is done.
    pub(crate) fn publish(&self, number: u64, frame: u32) -> Slot {
        let found = self.slot(number);
        if found != Slot::Free {
            return found;
        }
        let (at, round) = self.slot_of(number);
        let (free, published) = (round << ROUND | NONE, round << ROUND | u64::from(frame));
        match self.memory.compare_exchange(at, free, published) {
            Ok(_) => Slot::Free,
            // Somebody else was faster.
            Err(_) => self.slot(number),
        }
    }

    /// Up to which transaction frames and slots were given back. What is durable is so many more at
    /// the most as there are slots: if not, somebody else has written here, and nothing of it is
    /// looked at.
    pub(crate) fn trimmed(&self) -> u64 {
        let (trimmed, durable) = (self.memory.load(TRIMMED), self.durable());
        let slots = u64::from(self.layout.capacity.slots);
        trimmed.clamp(durable.saturating_sub(slots), durable)
    }

    /// The frames of a transaction's pages were given back: its record is needed no more.
    pub(crate) fn set_trimmed(&self, number: u64) {
        self.memory.store(TRIMMED, number);
    }

    /// Makes the slot of a transaction free for a later one.
    pub(crate) fn free_slot_after(&self, number: u64) {
        self.free_slot(number + u64::from(self.layout.capacity.slots));
    }

    /// How many transactions are in a checkpoint of the stores.
    pub fn durable(&self) -> u64 {
        self.memory.load(DURABLE).min(MOST)
    }

    /// The last checkpoint of the stores that is noted.
    pub fn durable_epoch(&self) -> u64 {
        self.memory.load(DURABLE_EPOCH).min(MOST)
    }

    /// Up to which transaction the checkpoint reaches that is being taken; `None` if none is.
    pub fn sealed(&self) -> Option<u64> {
        let under_way = self.memory.load(SEALED_EPOCH) == self.durable_epoch() + 1;
        under_way.then(|| self.memory.load(SEALED))
    }

    /// The last checkpoint of which it is known up to which transaction it reaches, whether it is
    /// there or not.
    pub fn last_sealed(&self) -> u64 {
        self.durable_epoch() + u64::from(self.sealed().is_some())
    }

    /// Ends an epoch: its checkpoint reaches up to but not including `number`.
    pub(crate) fn seal(&self, number: u64) {
        self.memory.store(SEALED, number);
        // The store that counts.
        self.memory.store(SEALED_EPOCH, self.durable_epoch() + 1);
    }

    /// The checkpoint that was under way is there, and the layer below has that room.
    pub(crate) fn set_durable(&self, number: u64, room: &Room) {
        // First the room. Whoever does not see yet what is durable by now counts that as well,
        // which is less than there is.
        self.set_room(room);
        self.memory.store(DURABLE, number);
        // The store that ends it. Who dies before that does both again.
        self.memory.store(DURABLE_EPOCH, self.durable_epoch() + 1);
    }
}
