//! Slots: the requests that are in flight, with their replies once these are decided.

use crate::layout::{Layout, SLOT_WORDS};
use crate::solo::Solo;
use crate::store::{SLOT_TOP, Store};
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

const STATE: usize = 0; // opcode | state
const UNIQUE: usize = 1;
const NODE: usize = 2; // the kernel's node id
const CRED: usize = 3; // uid | gid
const PID: usize = 4; // pid | generation
const LENGTH: usize = 5; // recorded bytes of the body | length of the whole message
const REPLY_LENGTH: usize = 6; // deaths with this request alone, see `Solo` | bytes of the reply
const NOTE: usize = 7; // mode of a created file, if it is to be put back | NOTE_BIT
const NOTE_BIT: u64 = 1 << 32;
/// Right behind the head, so that most requests take two lines of a cache.
const BODY: usize = 8;
const REPLY: usize = SLOT_WORDS - MAX_REPLY / 8;
/// Bytes of a reply that a slot holds: all replies of mutating requests fit.
pub const MAX_REPLY: usize = 160;
/// Bytes of a request's body that a slot holds: two names of the greatest length fit.
pub const MAX_BODY: usize = (REPLY - BODY) * 8;

/// How far a request has come in this generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// No request.
    Free = 0,
    /// Taken from the kernel, not yet given to the daemon.
    Taken = 1,
    /// Given to the daemon.
    Started = 2,
    /// Its reply is recorded; the kernel may or may not have it.
    Replied = 3,
    /// About to be read from the kernel straight into the slot's copy.
    Reading = 4,
}

/// The first word of a slot.
#[inline]
fn word_of(layout: &Layout, slot: Slot) -> usize {
    layout.slots + slot.0 as usize * SLOT_WORDS
}

/// Frees a slot of the store in `memory`, without the store: the one store that it takes may be
/// made by whoever has the request in hand, with no regard to what others do with the store.
#[inline]
pub fn free_slot<M: Memory>(memory: &M, layout: &Layout, slot: Slot) {
    memory.store(word_of(layout, slot) + STATE, SlotState::Free as u64);
}

/// Records a reply that changes nothing else: a change of its own, whose one store is that of the
/// state, so that there is nothing to undo. Like [`free_slot`], it needs no store. `false` if the
/// reply is too long.
#[inline]
pub fn record_reply<M: Memory>(
    memory: &M,
    layout: &Layout,
    slot: Slot,
    header: &[u8],
    body: &[u8],
) -> bool {
    if !header.len().is_multiple_of(8) || header.len() + body.len() > MAX_REPLY {
        return false;
    }
    let at = word_of(layout, slot);
    memory.store_bytes(at + REPLY, header);
    memory.store_bytes(at + REPLY + header.len() / 8, body);
    memory.store(at + REPLY_LENGTH, (header.len() + body.len()) as u64);
    let state = memory.load(at + STATE);
    memory.store(at + STATE, pair(high(state), SlotState::Replied as u32));
    true
}

/// A slot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u32);

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// How far it has come.
    pub state: SlotState,
    /// Opcode.
    pub opcode: u32,
    /// The kernel's id, without the resend bit.
    pub unique: u64,
    /// The kernel's node id.
    pub node: u64,
    /// Who asked.
    pub uid: u32,
    /// Who asked.
    pub gid: u32,
    /// Who asked.
    pub pid: u32,
    /// The generation that has it.
    pub generation: u32,
}

impl<M: Memory> Store<M> {
    #[inline]
    fn slot(&self, slot: Slot) -> usize {
        word_of(&self.layout, slot)
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.layout.capacity.slots as u32
    }

    /// How many of the first slots were ever in use: the others are free without a look, which
    /// would make the kernel fill a page of the sparse file for each, while applications are
    /// waiting.
    pub fn slots_used(&self) -> u32 {
        self.header(SLOT_TOP).min(self.layout.capacity.slots as u64) as u32
    }

    /// Raises the top above a slot that is about to be used. Not undone: too high does no harm.
    #[inline]
    fn slot_reach(&self, slot: Slot) {
        if u64::from(slot.0) >= self.tops.slots.get() {
            self.slot_raise(u64::from(slot.0) + 1);
        }
    }

    #[cold]
    fn slot_raise(&self, top: u64) {
        let top = top.max(self.header(SLOT_TOP));
        self.memory.store(self.layout.store + SLOT_TOP, top);
        self.tops.slots.set(top);
    }

    /// Fills a free slot. `body` is what follows the header; as much as fits is kept.
    /// The state comes last, in one store, so a slot is either free or whole.
    #[inline]
    pub fn slot_fill(&self, slot: Slot, request: &InFlight, body: &[u8], length: u32) {
        self.slot_reach(slot);
        let at = self.slot(slot);
        let body = body.get(..MAX_BODY).unwrap_or(body);
        let head = [
            request.unique,
            request.node,
            pair(request.uid, request.gid),
            pair(request.pid, request.generation),
            pair(body.len() as u32, length),
            0, // REPLY_LENGTH
            0, // NOTE
        ];
        self.memory.store_words(at + UNIQUE, head);
        self.memory.store_bytes(at + BODY, body);
        self.memory.store(at + STATE, pair(request.opcode, request.state as u32));
    }

    /// Moves a slot on.
    #[inline]
    pub fn slot_advance(&self, slot: Slot, state: SlotState) {
        let at = self.slot(slot) + STATE;
        self.memory.store(at, pair(high(self.memory.load(at)), state as u32));
    }

    /// Frees a slot.
    #[inline]
    pub fn slot_free(&self, slot: Slot) {
        free_slot(&self.memory, &self.layout, slot);
    }

    /// Records a reply as part of the change under way, so that reply and change are one.
    #[inline]
    pub fn slot_reply(&self, slot: Slot, reply: &[u8]) -> bool {
        if reply.len() > MAX_REPLY {
            return false;
        }
        let at = self.slot(slot);
        // Not undone: without the state they mean nothing.
        self.memory.store_bytes(at + REPLY, reply);
        self.memory.store(at + REPLY_LENGTH, reply.len() as u64);
        self.set_low(at + STATE, SlotState::Replied as u32);
        true
    }

    /// [`record_reply`].
    #[inline]
    pub fn slot_reply_alone(&self, slot: Slot, header: &[u8], body: &[u8]) -> bool {
        record_reply(&self.memory, &self.layout, slot, header, body)
    }

    /// The kernel's node id of the request in a slot.
    #[inline]
    pub fn slot_node(&self, slot: Slot) -> u64 {
        self.word(self.slot(slot) + NODE)
    }

    /// Whether a slot is free.
    #[inline]
    pub fn slot_is_free(&self, slot: Slot) -> bool {
        low(self.word(self.slot(slot) + STATE)) == SlotState::Free as u32
    }

    /// The request in a slot, if it is in use.
    pub fn slot_request(&self, slot: Slot) -> Option<InFlight> {
        let at = self.slot(slot);
        let word = self.word(at + STATE);
        let state = match low(word) {
            1 => SlotState::Taken,
            2 => SlotState::Started,
            3 => SlotState::Replied,
            4 => SlotState::Reading,
            _ => return None, // and no more is read: the supervisor looks at all of them
        };
        let [unique, node, cred, pid] = self.memory.load_fields(at, [UNIQUE, NODE, CRED, PID]);
        Some(InFlight {
            state,
            opcode: high(word),
            unique,
            node,
            uid: high(cred),
            gid: low(cred),
            pid: high(pid),
            generation: low(pid),
        })
    }

    /// The slots in use, with their requests.
    pub fn slot_requests(&self) -> impl Iterator<Item = (Slot, InFlight)> {
        let slots = (0..self.slots_used()).map(Slot);
        slots.filter_map(|slot| Some((slot, self.slot_request(slot)?)))
    }

    /// Whether slot holds `unique`, and in which state.
    #[inline]
    pub fn slot_is(&self, slot: Slot, unique: u64) -> bool {
        let at = self.slot(slot);
        low(self.word(at + STATE)) != SlotState::Free as u32 && self.word(at + UNIQUE) == unique
    }

    /// The recorded body of the request, and the length of the whole message.
    pub fn slot_body(&self, slot: Slot) -> (Vec<u8>, u32) {
        let at = self.slot(slot);
        let length = self.word(at + LENGTH);
        let mut body = vec![0; (high(length) as usize).min(MAX_BODY)];
        self.memory.load_bytes(at + BODY, &mut body);
        (body, low(length))
    }

    /// Like [`Store::slot_body`], into a buffer that is used again.
    pub fn slot_body_into(&self, slot: Slot, body: &mut Vec<u8>) {
        let at = self.slot(slot);
        body.clear();
        body.resize((high(self.word(at + LENGTH)) as usize).min(MAX_BODY), 0);
        self.memory.load_bytes(at + BODY, body);
    }

    /// The recorded body as far as `out` has room for it.
    pub fn slot_body_start<'b>(&self, slot: Slot, out: &'b mut [u8]) -> &'b [u8] {
        let at = self.slot(slot);
        let recorded = (high(self.word(at + LENGTH)) as usize).min(MAX_BODY);
        let end = recorded.min(out.len());
        let Some(out) = out.get_mut(..end) else { return &[] };
        self.memory.load_bytes(at + BODY, out);
        out
    }

    /// The recorded reply.
    pub fn slot_recorded_reply(&self, slot: Slot) -> Vec<u8> {
        let at = self.slot(slot);
        let mut reply = vec![0; (low(self.word(at + REPLY_LENGTH)) as usize).min(MAX_REPLY)];
        self.memory.load_bytes(at + REPLY, &mut reply);
        reply
    }

    /// The deaths in which a daemon had the slot's request alone. Gone once a reply is recorded.
    pub fn slot_solo(&self, slot: Slot) -> Solo {
        Solo::from_bits(high(self.word(self.slot(slot) + REPLY_LENGTH)))
    }

    /// Records these deaths, until the slot is filled again.
    pub fn slot_set_solo(&self, slot: Slot, solo: Solo) {
        let at = self.slot(slot) + REPLY_LENGTH;
        self.memory.store(at, pair(solo.bits(), low(self.word(at))));
    }

    /// The mode that a file must get back which the slot's request created, if it was widened.
    pub fn slot_widened(&self, slot: Slot) -> Option<u32> {
        let word = self.word(self.slot(slot) + NOTE);
        (word & NOTE_BIT != 0).then(|| low(word))
    }

    /// Remembers a mode that is to be put back, until the slot is filled again.
    pub fn slot_set_widened(&self, slot: Slot, mode: u32) {
        self.memory.store(self.slot(slot) + NOTE, NOTE_BIT | u64::from(mode));
    }

    /// Byte offset and length, in the memory, of the slot's request copy.
    pub fn slot_copy(&self, slot: Slot) -> (usize, usize) {
        let words = self.layout.copy_words;
        ((self.layout.copies + slot.0 as usize * words) * 8, words * 8)
    }

    /// The first `length` bytes of the slot's request copy.
    pub fn slot_copy_bytes(&self, slot: Slot, length: usize) -> Vec<u8> {
        let (at, max) = self.slot_copy(slot);
        let mut bytes = vec![0; length.min(max)];
        self.memory.load_bytes(at / 8, &mut bytes);
        bytes
    }

    /// Writes a request that was read elsewhere into the copy of a prepared slot, `unique` last:
    /// with that the copy is whole. `false` if there is no room for it.
    pub fn slot_copy_in(&self, slot: Slot, message: &[u8]) -> bool {
        let (at, max) = self.slot_copy(slot);
        let (Some((start, rest)), true) = (message.split_at_checked(8), message.len() <= max)
        else {
            return false;
        };
        let Some((unique, rest)) = rest.split_first_chunk::<8>() else { return false };
        self.memory.store_bytes(at / 8 + 2, rest);
        self.memory.store_bytes(at / 8, start);
        self.memory.store(at / 8 + 1, u64::from_ne_bytes(*unique));
        true
    }

    /// Prepares a slot for a read into its copy: the copy's header is cleared, so that a header
    /// found there after a crash is one that the kernel wrote.
    pub fn slot_prepare(&self, slot: Slot) {
        self.slot_reach(slot);
        let (at, _) = self.slot_copy(slot);
        for i in 0..5 {
            self.memory.store(at / 8 + i, 0);
        }
        self.memory.store(self.slot(slot) + STATE, pair(0, SlotState::Reading as u32));
    }
}
