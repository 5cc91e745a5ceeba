//! Transactions that can be undone until they are durable: those of direct I/O (namespace
//! transactions III-C).
//!
//! What undoes one is a transaction as well, and is there as a whole before that one is published:
//! its pages are in frames, its record is in cells, a slot is kept free for it, and its room below
//! is paid for with the other one. So it can be published whatever happens. The record of the first
//! says where the other one is. So the next life of a process finds it, and goes on from there.
//!
//! From the publication of the first until it is durable, or undone, its objects are held: nobody
//! reads them or changes them ([`Error::Held`]). So what is undone was seen by nobody, and nothing
//! that others have done since goes with it.
//!
//! A request of which the transaction was undone has not happened: it has no answer
//! ([`crate::answers`]).

use super::{Draft, Publisher, damaged, record_of};
use crate::error::Error;
use crate::index::Index;
use crate::log::Slot;
use crate::pool::Version;
use crate::record::Tie;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{ObjectId, Transaction, Undecodable};
use std::collections::{BTreeMap, BTreeSet};

/// A transaction that can be undone.
#[derive(Debug)]
pub(super) struct Revocable {
    unique: u64,
    objects: BTreeSet<ObjectId>,
    /// Where the record begins that undoes it, and what that takes.
    first: u32,
    cells: Vec<Version>,
    frames: Vec<Version>,
}

impl Revocable {
    /// The cells that the record takes which undoes it.
    pub(super) fn cells(&self) -> impl Iterator<Item = u32> {
        self.cells.iter().map(|version| version.place)
    }

    /// The frames with its pages.
    pub(super) fn frames(&self) -> impl Iterator<Item = u32> {
        self.frames.iter().map(|version| version.place)
    }

    /// The transaction of that number, which the record in that cell undoes.
    fn read<M: Memory>(
        shared: &Shared<M>,
        number: u64,
        unique: u64,
        first: u32,
        objects: BTreeSet<ObjectId>,
    ) -> Result<Self, Undecodable> {
        let (record, cells) = shared.read_record(first)?;
        if record.tie != Tie::Undoes(number) {
            return Err(Undecodable::new("what would undo a transaction is another one's"));
        }
        let (cells, frames) = shared.places_of(&record, cells)?;
        Ok(Self { unique, objects, first, cells, frames })
    }
}

fn objects_of(transaction: &Transaction) -> BTreeSet<ObjectId> {
    transaction.operations().flatten().map(|operation| operation.object()).collect()
}

/// Reads the log; gives the transactions of this mount that are not known to be durable, and not
/// undone. Those before have their answers.
pub(super) fn find<M: Memory>(
    shared: &Shared<M>,
    index: &mut Index,
) -> Result<BTreeMap<u64, Revocable>, Undecodable> {
    let mut found = BTreeMap::new();
    index.take_in(shared, u64::MAX, |number, record| match record.tie {
        Tie::Alone => {}
        Tie::Revocable(first) => {
            let objects = objects_of(&record.transaction);
            found.insert(number, (record.unique, first, objects));
        }
        Tie::Undoes(number) => {
            found.remove(&number);
        }
    })?;
    let (mut revocable, mut places) = (BTreeMap::new(), 0);
    let most = shared.cells().count() as usize + shared.frames().count() as usize;
    for (number, (unique, first, objects)) in found {
        if number >= shared.logged() && shared.is_of_mount(number) {
            let one = Revocable::read(shared, number, unique, first, objects)?;
            places += one.cells.len() + one.frames.len();
            if places > most {
                return Err(Undecodable::new("what undoes transactions shares its places"));
            }
            revocable.insert(number, one);
        }
    }
    Ok(revocable)
}

impl<M: Memory> Publisher<M> {
    /// Publishes a transaction as [`Publisher::commit`] does, together with one that undoes it
    /// ([`Publisher::undo`]), which then cannot fail. Its objects are held until it is known
    /// whether it stays.
    ///
    /// # Errors
    /// As for that; [`Error::Final`] if it takes away something and is not done with that.
    pub fn commit_revocably<L>(
        &mut self,
        mut draft: Draft,
        mut undo: Draft,
        unique: u64,
        reply: &[u8],
    ) -> Result<u64, Error<L>> {
        let published = self.publish_revocably(&mut draft, &mut undo, unique, reply);
        let (number, first, objects) = match published {
            Ok(published) => published,
            Err(why) => {
                self.drop_draft(draft);
                self.drop_draft(undo);
                return Err(why);
            }
        };
        let one = Revocable::read(&self.shared, number, unique, first, objects);
        self.revocable.insert(number, one.map_err(|why| damaged(&why))?);
        Ok(number)
    }

    fn publish_revocably<L>(
        &mut self,
        draft: &mut Draft,
        undo: &mut Draft,
        unique: u64,
        reply: &[u8],
    ) -> Result<(u64, u32, BTreeSet<ObjectId>), Error<L>> {
        if !draft.transaction.is_revocable() {
            return Err(Error::Final);
        }
        let mut undoes = record_of(undo, unique, b"");
        let first = self.take_cells(undo, &undoes)?;
        let mut record = record_of(draft, unique, reply);
        record.tie = Tie::Revocable(first);
        let objects = objects_of(&record.transaction);
        let number = self.publish(draft, record, Some((&mut undoes, &undo.cells)))?;
        Ok((number, first, objects))
    }

    /// A transaction is durable: it stays.
    pub fn settle(&mut self, number: u64) {
        let Some(one) = self.revocable.remove(&number) else { return };
        one.cells.into_iter().for_each(|cell| self.shared.cells().give_back_if(cell));
        one.frames.into_iter().for_each(|frame| self.shared.frames().give_back_if(frame));
    }

    /// Undoes a transaction that could not be made durable. False if the intent log or a checkpoint
    /// has reached it by now: then it stays.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Full`] if others have published meanwhile, who know nothing of
    /// this one.
    pub fn undo<L>(&mut self, number: u64) -> Result<bool, Error<L>> {
        let undone = self.publish_undo(number);
        match undone {
            Ok(true) => {
                self.revocable.remove(&number);
                self.refresh()?;
            }
            _ => self.settle(number),
        }
        undone
    }

    fn publish_undo<L>(&mut self, number: u64) -> Result<bool, Error<L>> {
        loop {
            self.refresh()?;
            let Some(one) = self.revocable.get(&number) else { return Ok(false) };
            // If it becomes durable after this, what it came to is undone in the next checkpoint:
            // the room for that was not taken by it.
            if number < self.shared.durable().max(self.shared.logged()) {
                return Ok(false);
            }
            let next = self.index.next();
            match self.shared.publish(next, one.first) {
                Slot::Free => return Ok(true),
                Slot::Other => return Err(Error::Full),
                Slot::Published(_) => self.refresh()?,
            }
            if self.index.next() == next {
                return Err(Error::Damaged("the log goes on where it ends"));
            }
        }
    }

    /// Transactions that may be undone yet, with their requests and objects.
    pub fn unsettled(&self) -> impl Iterator<Item = (u64, u64, &BTreeSet<ObjectId>)> {
        self.revocable.iter().map(|(number, one)| (*number, one.unique, &one.objects))
    }

    /// Whether an object can be had.
    pub(super) fn is_free<L>(&self, object: ObjectId) -> Result<(), Error<L>> {
        match self.revocable.values().any(|one| one.objects.contains(&object)) {
            true => Err(Error::Held(object)),
            false => Ok(()),
        }
    }
}
