//! How a namespace module makes a transaction, and reads what it and others have published.

use crate::clean::Clean;
use crate::credit::Known;
use crate::error::Error;
use crate::frames::Version;
use crate::index::{Changed, Index};
use crate::log::Slot;
use crate::record::{Record, frames_of};
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{
    Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Room, Transaction, Undecodable,
};
use std::collections::BTreeMap;
use zerocopy::little_endian::U64;

/// Pages that are read with one that is missed.
const MOST_AHEAD: usize = 32;

/// A process that reads and changes objects.
#[derive(Debug)]
pub struct Publisher<M: Memory> {
    shared: Shared<M>,
    /// Which life of the process this is. No two have the same.
    generation: u32,
    index: Index,
    clean: Clean,
    hint: u32,
}

/// A transaction that is being made. Nobody sees anything of it, and it can be dropped ([`Publisher::drop_draft`]).
#[derive(Debug, Default)]
pub struct Draft {
    transaction: Transaction,
    frames: Vec<u32>,
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

/// Why there is no way on in the memory itself.
fn damaged<L>(why: &Undecodable) -> Error<L> {
    Error::Damaged(why.why())
}

impl<M: Memory> Publisher<M> {
    /// A new life of a process. What earlier lives were making is dropped; what they have done tells
    /// [`crate::answers::Answers`].
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn attach<L>(shared: Shared<M>, generation: u32) -> Result<Self, Error<L>> {
        let mut index = Index::of(&shared);
        index.catch_up(&shared, u64::MAX).map_err(|why| damaged(&why))?;
        let mut used = index.frames();
        // What is durable and not given back yet is the cleaner's.
        for number in shared.trimmed()..index.durable() {
            if let Slot::Published(first) = shared.slot(number)
                && let Ok((own, pages)) = shared.frames_of_record(first)
            {
                used.extend(own.into_iter().chain(pages).map(|version| version.frame));
            }
        }
        shared.sweep(generation, &used);
        Ok(Self { shared, generation, index, clean: Clean::default(), hint: 0 })
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
        let (index, clean) = (&mut self.index, &mut self.clean);
        let before = index.durable();
        let taken = index.take_in(&self.shared, u64::MAX, |record| {
            clean.published(&record.transaction);
        });
        if index.durable() != before {
            // It has skipped some, and nobody knows what they have changed.
            clean.clear();
        }
        taken.map_err(|why| damaged(&why))?;
        // What others have published meanwhile, and is durable as well, is skipped the next time.
        let durable = self.shared.durable().min(index.next());
        index.forget(durable, |object, changed| clean.became_durable(object, changed, durable));
        Ok(())
    }

    /// What is known of an object; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`]; those of the layer below.
    pub fn attributes<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
    ) -> Result<Option<Attributes>, Error<B::Error>> {
        self.refresh()?;
        self.attributes_now(below, object)
    }

    /// The same, with what is known here of the log.
    fn attributes_now<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
    ) -> Result<Option<Attributes>, Error<B::Error>> {
        let changed = self.index.changed(object);
        let mut found = match changed.and_then(|changed| changed.is_there()) {
            Some(false) => return Ok(None),
            Some(true) => {
                let made = changed.and_then(|changed| changed.made);
                let class = made.map_or(Class::Data, |(class, _)| class);
                Attributes { size: 0, class, attributes: Vec::new() }
            }
            None => {
                let found = match self.clean.attributes(object) {
                    Some(found) => found,
                    None => {
                        let found = below.attributes(object).map_err(Error::Lower)?;
                        self.clean.keep_attributes(object, found.as_ref());
                        found
                    }
                };
                match found {
                    None => return Ok(None),
                    Some(found) => found,
                }
            }
        };
        if let Some(changed) = changed {
            found.size = changed.size.map_or(found.size, |(size, _)| size);
            if let Some((attributes, _)) = &changed.attributes {
                found.attributes.clone_from(attributes);
            }
        }
        Ok(Some(found))
    }

    /// Reads one page of an object that there is. What was never written is zeros.
    ///
    /// # Errors
    /// [`Error::Damaged`]; those of the layer below.
    pub fn read<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        page: u64,
        out: &mut [u8; PAGE],
    ) -> Result<(), Error<B::Error>> {
        loop {
            self.refresh()?;
            let durable = self.index.durable();
            let changed = self.index.changed(object);
            let found = changed.and_then(|changed| changed.pages.get(&page).copied());
            match found {
                Some((Some(version), _)) => {
                    if self.shared.read_page(version, object, page, out) {
                        return Ok(());
                    }
                    // It has become durable meanwhile, or the memory is damaged.
                    if self.shared.durable() == durable {
                        return Err(Error::Damaged("a page does not match its checksum"));
                    }
                }
                Some((None, _)) => {
                    out.fill(0);
                    return Ok(());
                }
                None if changed.is_none_or(|changed| changed.is_below(page)) => {
                    return self.read_below(below, object, page, out);
                }
                None => {
                    out.fill(0);
                    return Ok(());
                }
            }
        }
    }

    /// Reads a page of which the log has nothing, and what follows it, if a file seems to be read from one end to the other.
    fn read_below<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        page: u64,
        out: &mut [u8; PAGE],
    ) -> Result<(), Error<B::Error>> {
        if self.clean.page(object, page, out) {
            return Ok(());
        }
        let ahead = self.ahead(below, object, page)?;
        let mut all = vec![[0; PAGE]; 1 + ahead];
        if ahead == 0 || below.read(object, page, all.as_flattened_mut()).is_err() {
            // What is wrong with a page that follows says nothing of this one.
            all.truncate(1);
            below.read(object, page, out).map_err(Error::Lower)?;
            all.fill(*out);
        }
        // A page that is about to lose its end is not kept: the layer below will say something else of it.
        let cut = self.index.changed(object).and_then(Changed::cut).unwrap_or(u64::MAX);
        for (number, content) in (page..).zip(&all) {
            if number.saturating_add(1).saturating_mul(PAGE as u64) <= cut {
                self.clean.keep_page(object, number, content);
            }
        }
        if let Some(first) = all.first() {
            *out = *first;
        }
        Ok(())
    }

    /// How many pages behind a page are worth reading with it.
    fn ahead<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        page: u64,
    ) -> Result<usize, Error<B::Error>> {
        let is_next = page.checked_sub(1).is_none_or(|last| self.clean.has_page(object, last));
        if !is_next || !self.clean.has_room_for(MOST_AHEAD) {
            return Ok(0);
        }
        let found = self.attributes_now(below, object)?;
        let Some(found) = found.filter(|found| found.class == Class::Data) else { return Ok(0) };
        let changed = self.index.changed(object);
        let is_unknown = |number: &u64| {
            let is_below = changed.is_none_or(|changed| {
                changed.is_below(*number) && !changed.pages.contains_key(number)
            });
            is_below && !self.clean.has_page(object, *number)
        };
        let pages = found.size.div_ceil(PAGE as u64);
        Ok((page.saturating_add(1)..pages).take(MOST_AHEAD).take_while(is_unknown).count())
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

    /// Adds the writing of whole pages.
    ///
    /// # Errors
    /// [`Error::Full`], which leaves the transaction without them; [`Error::NoSpace`] if it is too large for the cache.
    pub fn write<L>(
        &mut self,
        draft: &mut Draft,
        object: ObjectId,
        page: u64,
        pages: &[[u8; PAGE]],
    ) -> Result<(), Error<L>> {
        let mut versions = Vec::new();
        for (number, content) in (page..).zip(pages) {
            let frame = self.take(draft)?;
            self.shared.fill(frame, object, number, content);
            versions.push(self.shared.version(frame).map_or(0, Version::number).into());
        }
        let frames: &[U64] = &versions;
        draft.transaction.add(&Operation::Pages { object, page, frames });
        Ok(())
    }

    fn take<L>(&mut self, draft: &mut Draft) -> Result<u32, Error<L>> {
        let Some(frame) = self.shared.take(self.generation, &mut self.hint) else {
            let all = self.shared.layout.capacity.frames as usize;
            // If nearly all frames are its own a checkpoint does not help.
            let is_too_large = draft.frames.len() >= all - all / 8;
            return Err(if is_too_large { Error::NoSpace } else { Error::Full });
        };
        draft.frames.push(frame);
        Ok(frame)
    }

    /// Publishes a transaction, with the request that it is of and the reply to that; gives its number. Before that everything can fail,
    /// and after it nothing.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::NoSpace`], with nothing done; [`Error::Damaged`].
    pub fn commit<L>(
        &mut self,
        mut draft: Draft,
        unique: u64,
        reply: &[u8],
    ) -> Result<u64, Error<L>> {
        let transaction = std::mem::take(&mut draft.transaction);
        let record = Record { unique, reply: reply.to_vec(), transaction, cost: Credit::default() };
        let published = self.publish(&mut draft, record);
        if published.is_err() {
            self.drop_draft(draft);
        }
        published
    }

    fn publish<L>(&mut self, draft: &mut Draft, mut record: Record) -> Result<u64, Error<L>> {
        let mut own = Vec::new();
        for _ in 0..frames_of(&record) {
            own.push(self.take(draft)?);
        }
        let first = own.first().copied().ok_or(Error::Full)?;
        loop {
            self.refresh()?;
            let number = self.index.next();
            let cost = self.index.cost_of(&record.transaction, &draft.known);
            record.cost = cost.map_err(|why| damaged(&why))?;
            self.find_room(record.cost, draft.takes_away)?;
            self.shared.write_record(&record, &own);
            match self.shared.publish(number, first) {
                Slot::Free => {
                    // So that none of its own is skipped. If the log makes no sense, whoever reads next is told.
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
        // What is in the log may make room when it reaches the layer below. If there is nothing, there is none.
        Err(if self.pending() > 0 { Error::Full } else { Error::NoSpace })
    }

    /// Drops a transaction.
    pub fn drop_draft(&self, draft: Draft) {
        for frame in draft.frames {
            self.shared.give_back(frame);
        }
    }

    /// How much room there is, without what is in the log can take.
    ///
    /// # Errors
    /// [`Error::Damaged`]; those of the layer below.
    pub fn room<B: Lower>(&mut self, below: &mut B) -> Result<Room, Error<B::Error>> {
        self.refresh()?;
        let owed = self.index.owed();
        let room = below.room().map_err(Error::Lower)?;
        let without = |blocks: u64| blocks.saturating_sub(owed.blocks);
        let (free, available) = (without(room.free), without(room.available));
        Ok(Room { free, available, credit: room.credit.without(owed), ..room })
    }

    /// How many transactions are not durable yet, as far as is known here.
    pub fn pending(&self) -> u64 {
        self.index.next() - self.index.durable()
    }
}
