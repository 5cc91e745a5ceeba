//! How the log changes by one store, and what a successor or a new epoch finds.
//!
//! Invariants
//! * The head word is stored when all that it speaks of is in place. No other word changes the log.
//! * Records are written behind the end of the half in use, or to the other half. Data are written
//!   to pages that no record of the log needs.
//! * The daemon's own memory ([`crate::index`]) knows what a scan of the records would find.

use crate::capacity::{Capacity, LogLayout};
use crate::cut::Cut;
use crate::head::Head;
use crate::index::{Index, Write};
use crate::notable::Notable;
use crate::pages::{PAGE_BYTES, Piece, Pieces, Slots, Staged, get, put, slot_at};
use crate::record::{Corrupt, Draft, Facts, NameChange, Record, Seed};
use belay_memory::Memory;
use belay_wire::Opcode;
use std::ops::Range;

/// See [`Head`].
const HEAD: usize = 0;
/// Not 0 once the log was made: then a head of 0 is damage. Apart from it, so that no small
/// accident takes both.
const MADE: usize = 256;

/// The log. One thread uses it at a time.
#[derive(Debug)]
pub struct Oplog<M> {
    pub(crate) memory: M,
    pub(crate) layout: LogLayout,
    pub(crate) epoch: u64,
    pub(crate) half: usize,
    pub(crate) used: usize,
    pub(crate) index: Index,
    pub(crate) slots: Slots,
    pub(crate) notable: Notable,
    pub(crate) scratch: Vec<u8>,
    pub(crate) corrupt: bool,
    pub(crate) next: Option<Cut>,
}

/// Why a record was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room. It does not happen to a request that was [admitted](Oplog::admits) and is
    /// answered while the log is not [exhausted](Oplog::is_exhausted); what befalls others is lost
    /// if the daemon dies before the next epoch.
    #[error("the op-log is full")]
    Full,
    /// The log was damaged in use. Nothing is appended or admitted any more until the next epoch.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Records to be replayed.
    pub records: usize,
    /// Bytes of records in use, those of writes that were replaced included.
    pub record_bytes: usize,
    /// Bytes of records that there can be.
    pub record_bytes_most: usize,
    /// Bytes of data to be written again.
    pub data_bytes: usize,
    /// Pages that hold them.
    pub pages: usize,
    /// Pages of requests in flight.
    pub staged_pages: usize,
    /// Pages that there can be.
    pub pages_most: usize,
}

impl<M: Memory> Oplog<M> {
    /// The log that `memory` has from word `at` on: empty if it was never used, or is of an older
    /// epoch than `epoch`. This writes to it, so it is for the daemon that goes on with it alone;
    /// everybody else has a look ([`Oplog::look`]).
    ///
    /// # Errors
    /// If it is damaged. See [`Oplog::fresh`].
    pub fn open(memory: M, at: usize, capacity: Capacity, epoch: u64) -> Result<Self, Corrupt> {
        let mut log = Self::unread(memory, at, capacity, epoch);
        let word = log.memory.load(at + HEAD);
        if word == 0 && log.memory.load(at + MADE) == 0 {
            log.restart(epoch);
            return Ok(log);
        }
        let head = Head::parse(word, epoch).ok_or(Corrupt)?;
        match log.prepared(epoch).filter(|_| head.epoch != epoch) {
            Some(next) => log.adopt(next)?,
            None if head.epoch == epoch => {
                (log.half, log.used) = (head.half, head.used);
                log.cancel_cut();
                log.rescan()?;
            }
            None => log.restart(epoch),
        }
        Ok(log)
    }

    /// An empty log, whatever was there.
    pub fn fresh(memory: M, at: usize, capacity: Capacity, epoch: u64) -> Self {
        let mut log = Self::unread(memory, at, capacity, epoch);
        log.restart(epoch);
        log
    }

    fn unread(memory: M, at: usize, capacity: Capacity, epoch: u64) -> Self {
        Self {
            memory,
            layout: LogLayout { at, capacity },
            epoch,
            half: 0,
            used: 0,
            index: Index::default(),
            slots: Slots::default(),
            notable: Notable::default(),
            scratch: Vec::new(),
            corrupt: false,
            next: None,
        }
    }

    /// A new epoch has begun: what is on record is part of a checkpoint now. To be called after the
    /// store that made `epoch` the current one, before anything else is done with the log. Data of
    /// requests in flight stay.
    pub fn restart(&mut self, epoch: u64) {
        (self.epoch, self.half, self.used, self.corrupt) = (epoch, 0, 0, false);
        self.cancel_cut();
        self.index.clear();
        self.slots.unlink_all();
        self.forget_notable();
        self.publish();
        if self.memory.load(self.layout.at + MADE) == 0 {
            self.memory.store(self.layout.at + MADE, 1);
        }
    }

    /// The memory below, for [`Staged::fill`].
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The epoch that the log is of.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How much there is; what makes a checkpoint due.
    pub fn sizes(&self) -> Sizes {
        let (pages, staged_pages) = self.slots.counts();
        Sizes {
            records: self.index.live,
            record_bytes: self.used * 8,
            record_bytes_most: self.layout.capacity.half() * 8,
            data_bytes: self.index.data_bytes,
            pages,
            staged_pages,
            pages_most: self.layout.capacity.pages,
        }
    }

    /// Bytes of the memory that hold nothing now, for giving back what a long epoch took.
    pub fn spare(&self) -> [Range<usize>; 3] {
        let half = self.layout.capacity.half();
        let (this, other) = (self.layout.records(self.half), self.layout.records(1 - self.half));
        [
            (this + self.used) * 8..(this + half) * 8,
            other * 8..(other + half) * 8,
            self.layout.page_bytes(self.slots.top()),
        ]
    }

    /// Takes pages for data of a request that has arrived: `length` bytes, for `offset` of the file
    /// (0 if it is no write). To be filled by [`Staged::fill`]. `None` if there is no room.
    pub fn reserve(&mut self, offset: u64, length: usize) -> Option<Staged> {
        self.slots.stage(&self.layout, offset, length)
    }

    /// First word of the page that data come to next, if there is room: to bring it near.
    #[inline]
    pub fn next_page(&self) -> usize {
        slot_at(self.layout.arena(), self.slots.next())
    }

    /// [`Oplog::reserve`], and fills them.
    pub fn stage(&mut self, offset: u64, data: &[u8]) -> Option<Staged> {
        let staged = self.reserve(offset, data.len())?;
        staged.fill(&self.memory, 0, data);
        Some(staged)
    }

    /// Gives staged data up: the request has failed.
    pub fn unstage(&mut self, staged: Staged) {
        staged.slots.iter().for_each(|slot| self.slots.release(*slot));
    }

    /// Appends what was done for a request, with its data. The last store makes it part of the log.
    /// Of a WRITE, as many bytes as [`Facts::size`] says were written become part of it; of a
    /// request that failed, none.
    ///
    /// What is dead may have to make room first: all other records are then written to the other
    /// half of the memory, and a store of the head makes that the log.
    ///
    /// # Errors
    /// If it was not appended. The staged data are given up.
    pub fn append(
        &mut self,
        facts: &Facts,
        body: &[u8],
        names: &[NameChange<'_>],
        staged: Option<Staged>,
    ) -> Result<(), Refused> {
        let pieces = staged.as_ref().map_or_else(Pieces::new, |staged| {
            let written = if facts.opcode == Opcode::WRITE.0 { facts.size } else { u64::MAX };
            let length = if facts.errno == 0 { written } else { 0 };
            staged.pieces(usize::try_from(length).unwrap_or(usize::MAX))
        });
        let slots = staged.map(|staged| staged.slots).unwrap_or_default();
        let kept = pieces.len();
        let result = self.append_pieces(facts, body, names, pieces);
        // What was not written, or all of it.
        let kept = if result.is_ok() { kept } else { 0 };
        slots.iter().skip(kept).for_each(|slot| self.slots.release(*slot));
        result
    }

    fn append_pieces(
        &mut self,
        facts: &Facts,
        body: &[u8],
        names: &[NameChange<'_>],
        mut pieces: Pieces,
    ) -> Result<(), Refused> {
        let words = Draft { facts, body, names, pieces: &pieces }.words();
        self.make_room(words)?;
        if let Some(write) = Write::of(facts, body, &pieces) {
            pieces.iter_mut().for_each(|piece| self.merge(write, piece));
        }
        let draft = Draft { facts, body, names, pieces: &pieces };
        let seed = self.seed(self.half, self.used);
        draft.encode(&seed, &mut self.scratch);
        let at = self.used;
        self.memory.store_bytes(self.layout.records(self.half) + at, &self.scratch);
        self.used += words;
        self.publish();
        // It is part of the log whatever comes now; its pages are its own, so nothing comes.
        let admitted = self.index.admit(&self.layout, &mut self.slots, &draft, at, true);
        debug_assert!(admitted.is_ok(), "staged pages are linked once");
        Ok(())
    }

    /// Copies what a write takes over on one page to the write's own page.
    #[inline]
    fn merge(&self, write: Write, piece: &mut Piece) {
        if self.index.touched(write, piece).any(|old| !piece.covers(old)) {
            self.join(write, piece);
        }
    }

    fn join(&self, write: Write, piece: &mut Piece) {
        let own = *piece;
        let (mut from, mut end) = (usize::from(own.from), own.end());
        let page = |slot| slot_at(self.layout.arena(), slot);
        let mut buffer = [0; PAGE_BYTES];
        for old in self.index.touched(write, &own).filter(|old| !own.covers(old)) {
            // In front of the new bytes, and behind.
            let front = usize::from(old.from)..old.end().min(usize::from(own.from));
            let back = usize::from(old.from).max(own.end())..old.end();
            for range in [front, back] {
                if let Some(bytes) = buffer.get_mut(range.clone()).filter(|bytes| !bytes.is_empty())
                {
                    get(&self.memory, page(old.slot), range.start, bytes);
                    put(&self.memory, page(own.slot), range.start, bytes);
                }
            }
            (from, end) = (from.min(usize::from(old.from)), end.max(old.end()));
        }
        (piece.from, piece.length) = (from as u16, (end - from) as u16);
    }

    /// Takes the last record out of the log again, if it is that of request `unique`: for a
    /// successor, if the request was not answered, because its daemon died between the log's store
    /// and its own that made the answer final. To be called before anything is staged: what the
    /// record had replaced must still be there.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn retract(&mut self, unique: u64) -> Result<bool, Corrupt> {
        let Some(last) = self.index.records.len().checked_sub(1) else { return Ok(false) };
        let Some(at) = self.index.records.get(last).map(|known| known.at) else { return Ok(false) };
        if self.record(last)?.facts.unique != unique {
            return Ok(false);
        }
        self.used = at;
        self.publish();
        self.rescan()?;
        Ok(true)
    }

    /// The records that are to be replayed and change the content of a file, by its number in
    /// [`Facts::files`]. A record of FLUSH, FSYNC or RELEASE of the file says that it was stored:
    /// then there are none.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn of_file(&self, file: u64) -> impl Iterator<Item = Result<Record, Corrupt>> {
        self.index.of_file(file).map(|number| self.record(number))
    }

    /// The files of whose content there are data, with their bytes, those with most first.
    pub fn weights(&self) -> Vec<(u64, usize)> {
        self.index.weights()
    }

    /// Whether there is one.
    pub fn holds(&self, file: u64) -> bool {
        self.index.of_file(file).next().is_some()
    }

    /// How many records there are, dead ones included: numbers for [`Oplog::record`].
    pub(crate) fn count(&self) -> usize {
        self.index.records.len()
    }

    /// The record with a number.
    pub(crate) fn record(&self, number: usize) -> Result<Record, Corrupt> {
        let at = self.index.records.get(number).ok_or(Corrupt)?.at;
        self.decode(at)
    }

    /// The records that are to be replayed, in their order.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, Corrupt>> {
        let live = self.index.records.iter().filter(|known| known.is_live());
        live.map(|known| self.decode(known.at))
    }

    pub(crate) fn decode(&self, at: usize) -> Result<Record, Corrupt> {
        let most = self.used.checked_sub(at).ok_or(Corrupt)?;
        let seed = self.seed(self.half, at);
        Record::decode(&self.memory, self.layout.records(self.half) + at, most, &seed)
    }

    /// First word of the pages of data.
    pub(crate) fn arena(&self) -> usize {
        self.layout.arena()
    }

    pub(crate) fn seed(&self, half: usize, at: usize) -> Seed {
        Seed { epoch: self.epoch, offset: self.layout.records(half) - self.layout.at + at }
    }

    /// The one store.
    pub(crate) fn publish(&self) {
        let head = Head { epoch: self.epoch, half: self.half, used: self.used };
        self.memory.store(self.layout.at + HEAD, head.word());
    }

    /// Finds out what is needed.
    pub(crate) fn rescan(&mut self) -> Result<(), Corrupt> {
        self.corrupt = true;
        self.index.clear();
        self.slots.unlink_all();
        self.forget_notable();
        if self.used > self.layout.capacity.half() {
            return Err(Corrupt);
        }
        let (mut at, mut notable) = (0, Notable::default());
        while at < self.used {
            let found = self.decode(at)?;
            let Record { facts, body, names, pieces, words } = &found;
            let draft = Draft { facts, body, names, pieces };
            self.index.admit(&self.layout, &mut self.slots, &draft, at, false)?;
            at += words;
            notable.look_at(found);
        }
        self.notable = notable;
        self.slots.gather();
        self.corrupt = false;
        Ok(())
    }
}

#[cfg(test)]
impl<M: Memory> Oplog<M> {
    /// Appends without a look at what it is.
    pub(crate) fn forge(&mut self, draft: &Draft<'_>, bytes: &mut Vec<u8>) {
        draft.encode(&self.seed(self.half, self.used), bytes);
        self.memory.store_bytes(self.layout.records(self.half) + self.used, bytes);
        self.used += bytes.len() / 8;
        self.publish();
    }

    /// Makes it shorter than it is.
    pub(crate) fn forge_length(&mut self, by: usize) {
        self.used -= by;
        self.publish();
    }
}
