//! How much room a log has: what may still come to it, and how dead records make room for others.

use crate::log::{Oplog, Refused};
use crate::pages::Pieces;
use crate::record::{Corrupt, Draft, Record};
use belay_memory::Memory;

/// Words of records that may be dead before it is worth while to write the others anew.
const SLACK: usize = 8192;

impl<M: Memory> Oplog<M> {
    /// Whether a request that changes something may go to the daemon: its data (`length` bytes, for
    /// `offset` of the file; 0 if it is no write) find room now, and its record will when it is
    /// answered: what is in flight has an eighth for that. Also where nothing is in the way that
    /// the next epoch would take out of it.
    #[inline]
    pub fn admits(&self, offset: u64, length: usize) -> bool {
        let records = self.used == 0 || self.room() >= self.layout.capacity.half() / 8;
        !self.corrupt && records && self.slots.admit(&self.layout, offset, length)
    }

    /// Whether there is so little room for records that no request of the kernel's may be answered
    /// any more: what is left is for what was done along with those that were.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        self.room() < self.layout.capacity.half() / 16
    }

    /// Words of records that can be appended, those included for which what is dead makes room.
    fn room(&self) -> usize {
        let most = self.layout.capacity.half();
        most.saturating_sub(if self.is_worth_compacting() {
            self.index.live_words
        } else {
            self.used
        })
    }

    /// Whether so much is dead that a full log is written anew. An eighth: where nearly all is
    /// needed, doing that for each record would take ages.
    fn is_worth_compacting(&self) -> bool {
        self.used.saturating_sub(self.index.live_words) > self.layout.capacity.half() / 8
    }

    /// Sees to it that `words` fit.
    pub(crate) fn make_room(&mut self, words: usize) -> Result<(), Refused> {
        if self.corrupt {
            return Err(Corrupt.into());
        }
        let most = self.layout.capacity.half();
        let dead = self.used - self.index.live_words;
        let full = self.used + words > most;
        if dead > self.index.live_words + SLACK || full && self.is_worth_compacting() {
            self.compact()?;
        }
        if self.used + words > most { Err(Refused::Full) } else { Ok(()) }
    }

    /// Writes what is needed to the other half.
    fn compact(&mut self) -> Result<(), Corrupt> {
        let half = 1 - self.half;
        let mut used = 0;
        for number in 0..self.count() {
            let Some(known) = self.index.records.get(number).filter(|known| known.is_live()) else {
                continue;
            };
            let record = self.decode(known.at).inspect_err(|_| self.corrupt = true)?;
            let live = known.pieces.iter().filter(|piece| piece.length > 0);
            let pieces: Pieces = live.copied().collect();
            let Record { facts, body, names, .. } = &record;
            Draft { facts, body, names, pieces: &pieces }
                .encode(&self.seed(half, used), &mut self.scratch);
            self.memory.store_bytes(self.layout.records(half) + used, &self.scratch);
            used += self.scratch.len() / 8;
        }
        self.note_floor(half, used);
        (self.half, self.used) = (half, used);
        self.publish();
        self.rescan()?;
        self.forget_notable();
        Ok(())
    }
}
