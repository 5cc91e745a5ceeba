//! How a namespace module makes a transaction, and reads what it and others have published.

mod reading;
mod revocable;

use crate::changes::punched_by;
use crate::clean::Clean;
use crate::credit::Known;
use crate::error::Error;
use crate::index::Index;
use crate::log::Slot;
use crate::pool::{Pool, Version};
use crate::recent::Recent;
use crate::record::{Record, Tie, cells_of, is_too_long};
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Class, Credit, ObjectId, Operation, PAGE, Transaction, Undecodable};
use revocable::Revocable;
use std::collections::BTreeMap;
use zerocopy::little_endian::U64;

/// A process that reads and changes objects.
#[derive(Debug)]
pub struct Publisher<M: Memory> {
    shared: Shared<M>,
    /// Which life of the process this is. No two have the same.
    generation: u32,
    index: Index,
    clean: Clean,
    recent: Recent,
    /// Transactions that can be undone, and are not known to be durable. Each holds its objects.
    revocable: BTreeMap<u64, Revocable>,
    /// Where to look next for a free frame, and for a free cell.
    next_frame: u32,
    next_cell: u32,
}

/// A transaction that is being made. Nobody sees anything of it, and it can be dropped
/// ([`Publisher::drop_draft`]).
#[derive(Debug, Default)]
pub struct Draft {
    transaction: Transaction,
    frames: Vec<u32>,
    cells: Vec<u32>,
    known: BTreeMap<ObjectId, Known>,
    takes_away: bool,
}

impl Draft {
    /// Whether nothing is to happen.
    pub fn is_empty(&self) -> bool {
        self.transaction.is_empty()
    }

    /// Says what an object was before this transaction. What is not said is taken for the worst.
    pub fn tell(&mut self, object: ObjectId, known: Known) {
        self.known.insert(object, known);
    }

    /// Says that it takes away, be it with some writing: for that there is a reserve.
    pub fn takes_away(&mut self) {
        self.takes_away = true;
    }
}

/// What a publisher knows of the log at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    next: u64,
    durable: u64,
}

/// The record of a draft, of which nobody knows yet what it takes.
fn record_of(draft: &mut Draft, unique: u64, reply: &[u8]) -> Record {
    let transaction = std::mem::take(&mut draft.transaction);
    let (cost, tie) = (Credit::default(), Tie::Alone);
    Record { unique, reply: reply.to_vec(), transaction, cost, tie }
}

/// Why there is no way on in the memory itself.
fn damaged<L>(why: &Undecodable) -> Error<L> {
    Error::Damaged(why.why())
}

/// Takes a place for a transaction that has some already.
fn take<M: Memory, L>(
    pool: &Pool<'_, M>,
    generation: u32,
    next: &mut u32,
    taken: &mut Vec<u32>,
) -> Result<u32, Error<L>> {
    let Some(place) = pool.take(generation, next) else {
        let all = pool.count() as usize;
        // If nearly all of them are its own a checkpoint does not help.
        let is_too_large = taken.len() >= all - all / 8;
        return Err(if is_too_large { Error::NoSpace } else { Error::Full });
    };
    taken.push(place);
    Ok(place)
}

impl<M: Memory> Publisher<M> {
    /// A new life of a process. What earlier lives were making is dropped; what they have done
    /// tells [`crate::answers::Answers`].
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn attach<L>(shared: Shared<M>, generation: u32) -> Result<Self, Error<L>> {
        let mut index = Index::of(&shared);
        let revocable = revocable::find(&shared, &mut index).map_err(|why| damaged(&why))?;
        // What is durable and not given back yet is the cleaner's.
        let (mut cells, mut frames) = (Vec::new(), Vec::new());
        for number in shared.trimmed()..index.durable() {
            if let Slot::Published(first) = shared.slot(number)
                && let Ok((record, own)) = shared.read_record(first)
                && let Ok((of_record, pages)) = shared.places_of(&record, own)
            {
                cells.extend(of_record.iter().map(|version| version.place));
                frames.extend(pages.iter().map(|version| version.place));
            }
        }
        for one in revocable.values() {
            cells.extend(one.cells());
            frames.extend(one.frames());
        }
        shared.cells().sweep(generation, index.cells().chain(cells));
        shared.frames().sweep(generation, index.frames().chain(frames));
        let (clean, recent) = (Clean::default(), Recent::new(index.next()));
        let (next_frame, next_cell) = (0, 0);
        Ok(Self { shared, generation, index, clean, recent, revocable, next_frame, next_cell })
    }

    /// Keeps up to so many bytes of what it reads from the layer below.
    #[must_use]
    pub fn keeping(mut self, bytes: usize) -> Self {
        self.clean = Clean::new(bytes);
        self
    }

    /// Takes in what others have published, and what has become durable.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn refresh<L>(&mut self) -> Result<(), Error<L>> {
        let (index, clean, recent) = (&mut self.index, &mut self.clean, &mut self.recent);
        let before = index.durable();
        let taken = index.take_in(&self.shared, u64::MAX, |number, record| {
            clean.published(&record.transaction);
            let operations = record.transaction.operations().flatten();
            operations.for_each(|operation| recent.changed(operation.object(), number));
        });
        if index.durable() != before {
            // It has skipped some, and nobody knows what they have changed.
            clean.clear();
            *recent = Recent::new(index.next());
        }
        taken.map_err(|why| damaged(&why))?;
        // What others have published meanwhile, and is durable as well, is skipped the next time.
        let durable = self.shared.durable().min(index.next());
        index.forget(durable, |object, changed| clean.became_durable(object, changed, durable));
        Ok(())
    }

    /// What is known here of the log at this moment.
    pub fn moment(&self) -> Moment {
        Moment { next: self.index.next(), durable: self.index.durable() }
    }

    /// Whether what the layer below says of an object, asked for at some moment since that one, is
    /// what it would say now, as far as is known here ([`Publisher::refresh`]): nothing was
    /// published of the object, and nothing of it that was published before has become durable.
    pub fn is_as_it_was(&self, object: ObjectId, then: Moment) -> bool {
        let before = self.recent.before(object);
        // Of what was durable then, the layer below has told.
        before <= then.durable || before <= then.next && then.durable == self.index.durable()
    }

    /// Begins a transaction.
    pub fn draft(&self) -> Draft {
        Draft::default()
    }

    /// Adds an operation without data of its own to a transaction.
    pub fn add(&self, draft: &mut Draft, operation: &Operation<'_>) {
        draft.transaction.add(operation);
    }

    /// Adds the making of an object.
    pub fn create(&self, draft: &mut Draft, object: ObjectId, class: Class, attributes: &[u8]) {
        draft.transaction.add(&Operation::Create { object, class, attributes });
    }

    /// Adds the writing of whole pages. The length of the object must reach there when the
    /// transaction ends ([`Operation::SetSize`]): what is behind it does not come back from the
    /// layer below.
    ///
    /// # Errors
    /// [`Error::Full`], which leaves the transaction without them; [`Error::NoSpace`] if it is too
    /// large for the cache.
    pub fn write<L>(
        &mut self,
        draft: &mut Draft,
        object: ObjectId,
        page: u64,
        pages: &[[u8; PAGE]],
    ) -> Result<(), Error<L>> {
        let mut versions = Vec::new();
        for (number, content) in (page..).zip(pages) {
            let (frames, next) = (self.shared.frames(), &mut self.next_frame);
            let frame = take(&frames, self.generation, next, &mut draft.frames)?;
            self.shared.fill(frame, object, number, content);
            versions.push(frames.version(frame).map_or(0, Version::number).into());
        }
        let frames: &[U64] = &versions;
        draft.transaction.add(&Operation::Pages { object, page, frames });
        Ok(())
    }

    /// Publishes a transaction, with the request that it is of and the reply to that; gives its
    /// number. Before that everything can fail, and after it nothing.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::NoSpace`], with nothing done; [`Error::Damaged`].
    pub fn commit<L>(
        &mut self,
        mut draft: Draft,
        unique: u64,
        reply: &[u8],
    ) -> Result<u64, Error<L>> {
        let record = record_of(&mut draft, unique, reply);
        let published = self.publish(&mut draft, record, None);
        if published.is_err() {
            self.drop_draft(draft);
        }
        published
    }

    /// Takes cells for the record of a transaction; gives the first.
    fn take_cells<L>(&mut self, draft: &mut Draft, record: &Record) -> Result<u32, Error<L>> {
        if is_too_long(record) {
            return Err(Error::NoSpace);
        }
        for _ in 0..cells_of(record) {
            let (cells, next) = (self.shared.cells(), &mut self.next_cell);
            take(&cells, self.generation, next, &mut draft.cells)?;
        }
        draft.cells.first().copied().ok_or(Error::Full)
    }

    /// Publishes a transaction; with it, if it is revocable, what undoes it is there, with its
    /// cells.
    fn publish<L>(
        &mut self,
        draft: &mut Draft,
        mut record: Record,
        mut undo: Option<(&mut Record, &[u32])>,
    ) -> Result<u64, Error<L>> {
        let first = self.take_cells(draft, &record)?;
        let punched = punched_by(&record.transaction);
        loop {
            self.refresh()?;
            if !self.index.has_room_for(punched) {
                return Err(if self.pending() > 0 { Error::Full } else { Error::NoSpace });
            }
            let number = self.index.next();
            self.find_slots(number, undo.is_some())?;
            let cost = self.index.cost_of(&record.transaction, &draft.known);
            record.cost = cost.map_err(|why| damaged(&why))?;
            if let Some((undo, cells)) = &mut undo {
                let both = record.transaction.then(&undo.transaction);
                let both = self.index.cost_of(&both, &draft.known).map_err(|why| damaged(&why))?;
                // Its room is a part of this one's, until it is published itself.
                (undo.cost, record.cost) = (both.without(record.cost), both);
                undo.tie = Tie::Undoes(number);
                self.shared.write_record(undo, cells);
            }
            self.find_room(record.cost, draft.takes_away)?;
            self.shared.write_record(&record, &draft.cells);
            match self.shared.publish(number, first) {
                Slot::Free => {
                    // So that none of its own is skipped. If the log makes no sense, whoever reads
                    // next is told.
                    let _ = self.refresh::<L>();
                    return Ok(number);
                }
                Slot::Other => return Err(Error::Full),
                // Its room is to be counted as well.
                Slot::Published(_) => self.refresh()?,
            }
            if self.index.next() == number {
                return Err(Error::Damaged("the log goes on where it ends"));
            }
        }
    }

    /// Whether the layer below has room for what is in the log, and this.
    fn find_room<L>(&self, cost: Credit, takes_away: bool) -> Result<(), Error<L>> {
        let (room, reserve) = self.shared.room();
        let room = if takes_away { room } else { room.without(reserve) };
        if cost.is_none() || self.index.owed().and(cost).fits(room) {
            return Ok(());
        }
        // What is in the log may make room when it reaches the layer below. If there is nothing,
        // there is none.
        Err(if self.pending() > 0 { Error::Full } else { Error::NoSpace })
    }

    /// Whether slots are left for what may be undone, besides that of a transaction. The last one
    /// that was trimmed may not be free yet.
    fn find_slots<L>(&self, number: u64, is_revocable: bool) -> Result<(), Error<L>> {
        let kept = self.revocable.len() as u64 + u64::from(is_revocable);
        let slots = u64::from(self.shared.layout.capacity.slots);
        if kept == 0
            || number.saturating_add(kept + 1) < self.shared.trimmed().saturating_add(slots)
        {
            return Ok(());
        }
        Err(if slots > kept + 1 { Error::Full } else { Error::NoSpace })
    }

    /// Drops a transaction.
    pub fn drop_draft(&self, draft: Draft) {
        for (pool, places) in
            [(self.shared.frames(), draft.frames), (self.shared.cells(), draft.cells)]
        {
            places.into_iter().for_each(|place| pool.give_back(place, self.generation));
        }
    }

    /// How many transactions are not durable yet, as far as is known here.
    pub fn pending(&self) -> u64 {
        self.index.next() - self.index.durable()
    }
}
