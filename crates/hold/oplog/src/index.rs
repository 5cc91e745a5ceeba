//! Which records and pieces are still needed: in the daemon's own memory, and made again from the
//! records.
//!
//! What is here follows from the records in their order and from nothing else, so that a
//! successor's is the same.

use crate::capacity::LogLayout;
use crate::pages::{Piece, Pieces, Slots};
use crate::record::{Corrupt, Draft, EVERY_FILE, Facts, PIECE};
use belay_wire::abi::{InHeader, WRITE_KILL_SUIDGID, WriteIn};
use belay_wire::{Opcode, OpcodeSet, Request};
use smallvec::SmallVec;
use std::collections::HashMap;

/// Asked and changed at each write, so by a fast hasher (seeded, as users choose what they write).
type Map<V> = HashMap<u64, V, foldhash::fast::RandomState>;

/// Records that say that a file was stored.
const STORES: OpcodeSet = OpcodeSet::new(&[Opcode::FLUSH, Opcode::FSYNC, Opcode::RELEASE]);

/// A record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its first word, counted from that of its half.
    pub(crate) at: usize,
    /// All of its pieces, in the order of their pages.
    pub(crate) pieces: Pieces,
    /// Its words without those of its pieces.
    own_words: usize,
    /// How many of them no later write has taken over.
    live: usize,
    /// The file whose content it changes, 0 for none or several.
    file: u64,
    /// It need not be replayed, whatever it has: its file was stored since.
    stored: bool,
    /// The first record from which it has taken over data itself; `u32::MAX` for none.
    pub(crate) reach: u32,
}

impl Known {
    /// Whether it is to be replayed: it has data left, or never had any.
    pub(crate) fn is_live(&self) -> bool {
        !self.stored && (self.live > 0 || self.pieces.is_empty())
    }
}

/// Pieces by page of a file: which record's, and what.
type Pages = Map<SmallVec<[(u32, Piece); 1]>>;

/// The pieces of one file since its last barrier.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stretch {
    clears_setuid: bool,
    pages: Pages,
}

/// A table that was used before, empty: one that grows from nothing in each epoch is copied ten
/// times.
#[derive(Debug, Default)]
struct Spare(Pages);

impl Spare {
    /// Tables and lists with room for more are given back: to empty one takes as long as it is
    /// large.
    const MOST: usize = 1 << 13;

    fn put(&mut self, mut used: Pages) {
        if (self.0.capacity() + 1..=Self::MOST).contains(&used.capacity()) {
            used.clear();
            self.0 = used;
        }
    }
}

/// It is not what an index says.
impl PartialEq for Spare {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Spare {}

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) records: Vec<Known>,
    files: Map<Stretch>,
    spare: Spare,
    /// Records to be replayed.
    pub(crate) live: usize,
    /// Words that these would take if they were written anew.
    pub(crate) live_words: usize,
    /// Bytes of data in their pieces.
    pub(crate) data_bytes: usize,
}

/// What a write does to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    file: u64,
    clears_setuid: bool,
}

impl Write {
    /// `None` if the request takes nothing over.
    pub(crate) fn of(facts: &Facts, body: &[u8], pieces: &[Piece]) -> Option<Self> {
        let file = facts.files[0];
        if facts.opcode != Opcode::WRITE.0 || pieces.is_empty() || matches!(file, 0 | EVERY_FILE) {
            return None;
        }
        let request = Request { header: InHeader::default(), body };
        let flags = request.body_as::<WriteIn>().map_or(0, |write| write.write_flags);
        Some(Self { file, clears_setuid: flags & WRITE_KILL_SUIDGID != 0 })
    }
}

impl Index {
    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.barrier(EVERY_FILE);
        let mut records = std::mem::take(&mut self.records);
        let spare = std::mem::take(&mut self.spare);
        records.clear();
        if records.capacity() > Spare::MOST {
            records = Vec::new();
        }
        *self = Self { records, spare, ..Self::default() };
    }

    /// Whether the record with a number is to be replayed.
    pub(crate) fn is_live(&self, number: usize) -> bool {
        self.records.get(number).is_some_and(Known::is_live)
    }

    /// The pieces on a page of a file that a write which has `piece` of it takes over.
    pub(crate) fn touched(&self, write: Write, piece: &Piece) -> impl Iterator<Item = &Piece> {
        let stretch = self.files.get(&write.file);
        let stretch = stretch.filter(|stretch| stretch.clears_setuid == write.clears_setuid);
        let pieces = stretch.and_then(|stretch| stretch.pages.get(&piece.page));
        let piece = *piece;
        pieces.into_iter().flatten().map(|(_, old)| old).filter(move |old| piece.touches(old))
    }

    /// Takes up the record that follows those that are known, and starts at `at`. Its pieces' pages
    /// must be free or, if they are `staged`, in flight.
    pub(crate) fn admit(
        &mut self,
        layout: &LogLayout,
        slots: &mut Slots,
        draft: &Draft<'_>,
        at: usize,
        staged: bool,
    ) -> Result<(), Corrupt> {
        let Draft { facts, body, pieces, .. } = *draft;
        if !pieces.iter().all(|piece| slots.link(layout, piece.slot, staged)) {
            return Err(Corrupt);
        }
        let words = draft.words();
        if STORES.has(Opcode(facts.opcode)) {
            self.store(facts.files[0], slots);
            let own_words = words;
            let (pieces, at) = (Pieces::new(), at);
            self.records.push(Known {
                at,
                pieces,
                own_words,
                live: 0,
                file: 0,
                stored: true,
                reach: u32::MAX,
            });
            return Ok(());
        }
        self.live += 1;
        self.live_words += words;
        self.data_bytes += pieces.iter().map(|piece| usize::from(piece.length)).sum::<usize>();
        let mut reach = u32::MAX;
        match Write::of(facts, body, pieces) {
            Some(write) => {
                reach = self.take_over(write, pieces, slots, !staged);
                self.barrier(facts.files[1]);
            }
            // Nobody knows where it went.
            None if facts.opcode == Opcode::WRITE.0 && facts.files[0] == 0 => {
                self.barrier(EVERY_FILE);
            }
            None => facts.files.iter().for_each(|file| self.barrier(*file)),
        }
        let own_words = words - PIECE * pieces.len();
        let file = if facts.files[0] == EVERY_FILE { 0 } else { facts.files[0] };
        let (pieces, live) = (pieces.into(), pieces.len());
        self.records.push(Known { at, own_words, pieces, live, file, stored: false, reach });
        Ok(())
    }

    /// The numbers of the records that are to be replayed and change the content of a file.
    pub(crate) fn of_file(&self, file: u64) -> impl Iterator<Item = usize> {
        let live = self
            .records
            .iter()
            .enumerate()
            .filter(move |(_, known)| file != 0 && known.file == file && known.is_live());
        live.map(|(number, _)| number)
    }

    /// The files of whose content there are data, with their bytes, those with most first.
    pub(crate) fn weights(&self) -> Vec<(u64, usize)> {
        let mut files = Map::<usize>::default();
        for known in self.records.iter().filter(|known| known.file != 0 && known.is_live()) {
            let bytes: usize = known.pieces.iter().map(|piece| usize::from(piece.length)).sum();
            *files.entry(known.file).or_default() += bytes;
        }
        let mut files: Vec<_> = files.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        files.sort_unstable_by_key(|(file, bytes)| (std::cmp::Reverse(*bytes), *file));
        files
    }

    /// A file was stored: what changed it before is not replayed.
    fn store(&mut self, file: u64, slots: &mut Slots) {
        self.barrier(file);
        for known in self.records.iter_mut().filter(|known| known.file == file && file != 0) {
            if !known.is_live() {
                continue;
            }
            for piece in known.pieces.iter_mut().filter(|piece| piece.length > 0) {
                slots.release(piece.slot);
                self.data_bytes -= usize::from(piece.length);
                self.live_words -= PIECE;
                piece.length = 0;
            }
            self.live -= 1;
            self.live_words -= known.own_words;
            (known.live, known.stored) = (0, true);
        }
    }

    fn barrier(&mut self, file: u64) {
        match file {
            0 => {}
            EVERY_FILE => self.files.drain().for_each(|(_, stretch)| self.spare.put(stretch.pages)),
            _ => {
                if let Some(stretch) = self.files.remove(&file) {
                    self.spare.put(stretch.pages);
                }
            }
        }
    }

    /// Gives the first record that has lost something.
    fn take_over(&mut self, write: Write, pieces: &[Piece], slots: &mut Slots, scans: bool) -> u32 {
        let number = self.records.len() as u32;
        let spare = &mut self.spare;
        let stretch = self.files.entry(write.file).or_insert_with(|| Stretch {
            clears_setuid: write.clears_setuid,
            pages: std::mem::take(&mut spare.0),
        });
        if stretch.clears_setuid != write.clears_setuid {
            *stretch = Stretch { clears_setuid: write.clears_setuid, ..Stretch::default() };
        }
        if scans {
            // All of it at once. In operation a table that is full may well have these pages
            // already.
            stretch.pages.reserve(pieces.len());
        }
        let mut lost = SmallVec::<[(u32, Piece); 2]>::new();
        for piece in pieces {
            let on_page = stretch.pages.entry(piece.page).or_default();
            on_page.retain(|(owner, old)| {
                let covered = piece.covers(old);
                if covered {
                    lost.push((*owner, *old));
                }
                !covered
            });
            on_page.push((number, *piece));
        }
        lost.iter().for_each(|(owner, old)| self.lose(*owner, old, slots));
        lost.iter().map(|(owner, _)| *owner).min().unwrap_or(u32::MAX)
    }

    /// A record has lost a piece.
    fn lose(&mut self, owner: u32, piece: &Piece, slots: &mut Slots) {
        slots.release(piece.slot);
        self.data_bytes -= usize::from(piece.length);
        let Some(known) = self.records.get_mut(owner as usize) else { return };
        if let Ok(at) = known.pieces.binary_search_by_key(&piece.page, |piece| piece.page)
            && let Some(piece) = known.pieces.get_mut(at)
        {
            piece.length = 0;
        }
        known.live -= 1;
        self.live_words -= PIECE;
        if known.live == 0 {
            self.live -= 1;
            self.live_words -= known.own_words;
        }
    }
}
