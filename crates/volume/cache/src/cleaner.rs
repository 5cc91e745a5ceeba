//! How what was published reaches the stores, in checkpoints, and leaves the memory.
//!
//! 1. The epoch is sealed: its checkpoint has all transactions up to a number, which is noted.
//! 2. What they come to is brought to the layer below, which takes the checkpoint
//!    ([`crate::bring`]).
//! 3. That they are durable is noted, and how much room is left ([`crate::credit`]); their frames
//!    and slots are given back.
//!
//! Whoever dies on the way, the next one looks whether the layer below has the checkpoint already,
//! which is the death at the very end of a sync (Loris VI-B). If so the third step is done; else
//! all of it is done again, with what was published meanwhile.

use crate::answers::Answer;
use crate::bring::checkpoint;
use crate::dropped::Dropped;
use crate::error::Error;
use crate::index::Index;
use crate::intent::Synced;
use crate::layout::ANSWERS;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::Lower;
use std::cell::RefCell;

/// The process that takes checkpoints. There is one at a time.
#[derive(Debug)]
pub struct Cleaner<M: Memory> {
    pub(crate) shared: Shared<M>,
    dropped: RefCell<Dropped>,
    pub(crate) synced: RefCell<Synced>,
}

impl<M: Memory> Cleaner<M> {
    /// One that may find what another one has begun.
    pub fn new(shared: Shared<M>) -> Self {
        Self { shared, dropped: RefCell::default(), synced: RefCell::default() }
    }

    /// Takes a checkpoint of all that is published now; gives up to which transaction everything is
    /// durable. One that was begun and failed, or whose cache died, is begun anew: so whatever was
    /// appended to the intent log is in the next checkpoint. What comes to an object that is
    /// damaged for good is dropped.
    ///
    /// # Errors
    /// [`Error::Damaged`]; those of the layer below, which must be opened again then.
    pub fn checkpoint<B: Lower>(&self, below: &mut B) -> Result<u64, Error<B::Error>> {
        self.note_taken(below)?;
        let index = self.seal()?;
        let end = index.next();
        let mut dropped = self.dropped.borrow_mut();
        let epoch = checkpoint(below, index.changes(), &self.shared, end, &mut dropped)?;
        if epoch != self.shared.durable_epoch() + 1 {
            return Err(Error::Damaged("the stores have taken another checkpoint"));
        }
        // Now it is that of the checkpoint, before anything else is done.
        let room = below.room().map_err(Error::Lower)?;
        self.shared.set_durable(end, &room);
        self.trim()?;
        Ok(end)
    }

    /// Notes the checkpoint that was begun, if the layer below has it, and whoever had it taken
    /// died before this.
    pub(crate) fn note_taken<B: Lower>(&self, below: &mut B) -> Result<(), Error<B::Error>> {
        self.trim()?;
        let last = below.epoch().map_err(Error::Lower)?.saturating_sub(1);
        let durable = self.shared.durable_epoch();
        match (self.shared.sealed(), last.checked_sub(durable)) {
            (_, Some(0)) => Ok(()),
            (Some(sealed), Some(1)) => {
                // Nothing was done to the layer below since.
                let room = below.room().map_err(Error::Lower)?;
                self.shared.set_durable(sealed, &room);
                self.trim()
            }
            _ => Err(Error::Damaged("the stores are at a checkpoint that it does not know")),
        }
    }

    /// Seals the epoch; gives what its transactions come to. The layer below has no checkpoint of
    /// it yet.
    fn seal<L>(&self) -> Result<Index, Error<L>> {
        let mut index = Index::of(&self.shared);
        let read = index.catch_up(&self.shared, u64::MAX);
        read.map_err(|why| Error::Damaged(why.why()))?;
        self.shared.seal(index.next());
        Ok(index)
    }

    /// Gives back frames and slots of what is durable.
    fn trim<L>(&self) -> Result<(), Error<L>> {
        let (trimmed, durable) = (self.shared.trimmed(), self.shared.durable());
        if let Some(last) = trimmed.checked_sub(1) {
            // Whoever trimmed last may have died before this. If not, it says so already.
            if matches!(self.shared.slot(last), crate::log::Slot::Published(_)) {
                self.shared.free_slot_after(last);
            }
        }
        for number in trimmed..durable {
            let crate::log::Slot::Published(first) = self.shared.slot(number) else {
                return Err(Error::Damaged("a durable transaction is not in the log"));
            };
            let read = self.shared.read_record(first);
            let (record, cells) = read.map_err(|why| Error::Damaged(why.why()))?;
            let places = self.shared.places_of(&record, cells);
            let (cells, pages) = places.map_err(|why| Error::Damaged(why.why()))?;
            if number + ANSWERS as u64 >= durable {
                self.shared.keep_answer(&Answer::of(number, record));
            }
            for page in pages {
                self.shared.frames().give_back_if(page);
            }
            self.shared.set_trimmed(number + 1);
            // If this is not done the frames are found when their owner's next life begins.
            for cell in cells {
                self.shared.cells().give_back_if(cell);
            }
            self.shared.free_slot_after(number);
        }
        Ok(())
    }
}
