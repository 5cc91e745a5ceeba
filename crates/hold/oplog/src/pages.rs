//! Where the data of writes are: in pages that are staged when a request arrives, linked when it
//! was carried out, and freed when nothing needs them.
//!
//! Which page is in use is known in the daemon's own memory only. A successor learns it from the
//! records.

use crate::capacity::LogLayout;
use belay_memory::Memory;
use smallvec::SmallVec;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// The part of a page that a record keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which page of the file; of a request that is no write, of its data.
    pub(crate) page: u64,
    /// Which page of the log holds it.
    pub(crate) slot: u32,
    /// First byte.
    pub(crate) from: u16,
    /// Bytes. 0: a later write has taken it over.
    pub(crate) length: u16,
}

/// The pieces of a request. Without a page cache that writes back most have one, and a write is to
/// cost no allocation.
pub(crate) type Pieces = SmallVec<[Piece; 1]>;

impl Piece {
    /// The byte behind the last.
    pub(crate) fn end(&self) -> usize {
        usize::from(self.from) + usize::from(self.length)
    }

    /// Whether all of `other` is covered.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.from <= other.from && other.end() <= self.end()
    }

    /// Whether `other` overlaps or adjoins.
    pub(crate) fn touches(&self, other: &Self) -> bool {
        usize::from(self.from) <= other.end() && usize::from(other.from) <= self.end()
    }

    /// Offset in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.page.saturating_mul(PAGE_BYTES as u64).saturating_add(u64::from(self.from))
    }
}

/// Data of a request that is in flight: pages that are no part of the log yet.
///
/// It must go to [`crate::Oplog::append`] or [`crate::Oplog::unstage`], or its pages are lost until
/// the next generation.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Staged {
    arena: usize,
    offset: u64,
    length: usize,
    pub(crate) slots: SmallVec<[u32; 2]>,
}

impl Staged {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `data` to byte `skip` of the staged range; what does not fit is left out. It needs
    /// nothing but the memory, so it may be done without the lock that guards the log.
    pub fn fill<M: Memory>(&self, memory: &M, skip: usize, data: &[u8]) {
        let mut data = data.get(..self.length.saturating_sub(skip)).unwrap_or(data);
        let mut at = (self.offset % PAGE_BYTES as u64) as usize + skip.min(self.length);
        while !data.is_empty() {
            let from = at % PAGE_BYTES;
            let (now, rest) = data.split_at(data.len().min(PAGE_BYTES - from));
            let Some(slot) = self.slots.get(at / PAGE_BYTES) else { return };
            put(memory, slot_at(self.arena, *slot), from, now);
            at += now.len();
            data = rest;
        }
    }

    /// The pieces of the first `length` bytes.
    pub(crate) fn pieces(&self, length: usize) -> Pieces {
        let length = length.min(self.length) as u64;
        let end = self.offset + length;
        let first = self.offset / PAGE_BYTES as u64;
        let pieces = self.slots.iter().enumerate().map_while(|(i, slot)| {
            let page = first + i as u64;
            let start = page * PAGE_BYTES as u64;
            let (from, to) = (self.offset.max(start), end.min(start + PAGE_BYTES as u64));
            let length = to.checked_sub(from).filter(|length| *length > 0)?;
            Some(Piece { page, slot: *slot, from: (from - start) as u16, length: length as u16 })
        });
        pieces.collect()
    }
}

/// Data of the log, without a gap in the file, where they are: for who copies them to where they
/// are wanted. They stay as long as the log is not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlace {
    length: usize,
    /// First byte in the memory, and bytes. Pages that were taken one after the other are one part.
    parts: SmallVec<[(usize, usize); 1]>,
}

impl InPlace {
    /// Adds `length` bytes of a piece behind its first `skip`.
    pub(crate) fn push(&mut self, arena: usize, piece: &Piece, skip: usize, length: usize) {
        let from = slot_at(arena, piece.slot) * 8 + usize::from(piece.from) + skip;
        self.length += length;
        match self.parts.last_mut() {
            Some((start, have)) if *start + *have == from => *have += length,
            _ => self.parts.push((from, length)),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies them to `out`, as many as there is room for.
    pub fn copy_to<M: Memory>(&self, memory: &M, out: &mut [u8]) {
        let mut out = out;
        for (from, length) in &self.parts {
            let now = (*length).min(out.len());
            let (part, rest) = std::mem::take(&mut out).split_at_mut(now);
            memory.load_unaligned(*from, part);
            out = rest;
        }
    }

    /// A copy.
    pub fn to_vec<M: Memory>(&self, memory: &M) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.copy_to(memory, &mut bytes);
        bytes
    }
}

/// How many pages `length` bytes at `offset` of a file touch. `None` if the file would be too long.
#[inline]
fn pages_of(offset: u64, length: usize) -> Option<usize> {
    // Room for a page behind the end, so that no bound of a piece overflows.
    let end = offset.checked_add(length as u64)?;
    end.checked_add(2 * PAGE_BYTES as u64)?;
    let page = PAGE_BYTES as u64;
    Some(if length == 0 { 0 } else { (end.div_ceil(page) - offset / page) as usize })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Staged,
    Linked,
}

/// Which pages are in use.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    states: Vec<State>,
    free: Vec<u32>,
    staged: usize,
    linked: usize,
}

impl Slots {
    /// Takes pages for `length` bytes at `offset` of a file. `None` if there are not enough, or the
    /// file would be too long.
    pub(crate) fn stage(
        &mut self,
        layout: &LogLayout,
        offset: u64,
        length: usize,
    ) -> Option<Staged> {
        let count = pages_of(offset, length)?;
        if count > self.left(layout) {
            return None;
        }
        let mut slots = SmallVec::with_capacity(count);
        while slots.len() < count {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.states.push(State::Free);
                (self.states.len() - 1) as u32
            });
            if let Some(state) = self.states.get_mut(slot as usize) {
                *state = State::Staged;
            }
            slots.push(slot);
        }
        self.staged += count;
        Some(Staged { arena: layout.arena(), offset, length, slots })
    }

    /// Whether [`Slots::stage`] would find room, or would not although none is taken.
    #[inline]
    pub(crate) fn admit(&self, layout: &LogLayout, offset: u64, length: usize) -> bool {
        self.staged + self.linked == 0
            || pages_of(offset, length).is_none_or(|count| count <= self.left(layout))
    }

    /// The page that is staged next, if there is room for one.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.states.len() as u32)
    }

    /// Pages that can be staged.
    pub(crate) fn left(&self, layout: &LogLayout) -> usize {
        layout.capacity.pages.saturating_sub(self.staged + self.linked)
    }

    /// Makes a page part of the log. `false` if another record has it, or there is no such page.
    pub(crate) fn link(&mut self, layout: &LogLayout, slot: u32, staged: bool) -> bool {
        let at = slot as usize;
        if at >= layout.capacity.pages {
            return false;
        }
        if at >= self.states.len() {
            self.states.resize(at + 1, State::Free);
        }
        let expected = if staged { State::Staged } else { State::Free };
        match self.states.get_mut(at) {
            Some(state) if *state == expected => *state = State::Linked,
            _ => return false,
        }
        self.staged -= usize::from(staged);
        self.linked += 1;
        true
    }

    /// Frees a page, whichever way it was in use.
    pub(crate) fn release(&mut self, slot: u32) {
        let Some(state) = self.states.get_mut(slot as usize) else { return };
        match std::mem::replace(state, State::Free) {
            State::Free => return,
            State::Staged => self.staged -= 1,
            State::Linked => self.linked -= 1,
        }
        self.free.push(slot);
    }

    /// Frees all pages of records; those of requests in flight stay.
    pub(crate) fn unlink_all(&mut self) {
        for state in self.states.iter_mut().filter(|state| **state == State::Linked) {
            *state = State::Free;
        }
        self.linked = 0;
        self.gather();
    }

    /// Makes the list of free pages anew, so that the first ones are taken first.
    pub(crate) fn gather(&mut self) {
        while self.states.pop_if(|state| *state == State::Free).is_some() {}
        let free = self.states.iter().enumerate().rev().filter(|(_, state)| **state == State::Free);
        self.free = free.map(|(slot, _)| slot as u32).collect();
    }

    /// Pages of records, and of requests in flight.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.linked, self.staged)
    }

    /// Pages behind the last that was in use since the last [`Slots::gather`].
    pub(crate) fn top(&self) -> usize {
        self.states.len()
    }
}

/// The first word of a page.
pub(crate) fn slot_at(arena: usize, slot: u32) -> usize {
    arena + slot as usize * PAGE_WORDS
}

/// Writes bytes into a page, at any offset.
pub(crate) fn put<M: Memory>(memory: &M, page: usize, from: usize, data: &[u8]) {
    let (mut at, lead) = (page + from / 8, from % 8);
    let mut data = data;
    if lead != 0 {
        let (first, rest) = data.split_at(data.len().min(8 - lead));
        patch(memory, at, lead, first);
        at += 1;
        data = rest;
    }
    let (whole, rest) = data.split_at(data.len() & !7);
    if !whole.is_empty() {
        memory.store_bytes(at, whole);
    }
    if !rest.is_empty() {
        patch(memory, at + whole.len() / 8, 0, rest);
    }
}

/// Writes bytes into a word.
fn patch<M: Memory>(memory: &M, at: usize, lead: usize, data: &[u8]) {
    let mut bytes = memory.load(at).to_ne_bytes();
    for (to, byte) in bytes.iter_mut().skip(lead).zip(data) {
        *to = *byte;
    }
    memory.store(at, u64::from_ne_bytes(bytes));
}

/// Reads bytes of a page, from any offset.
pub(crate) fn get<M: Memory>(memory: &M, page: usize, from: usize, out: &mut [u8]) {
    memory.load_unaligned(page * 8 + from, out);
}
