//! How what somebody was told is durable survives a power failure before the next checkpoint.
//!
//! A sync of a file appends to the intent log, in one write: all transactions that are not in it
//! yet, without the data of other files; and the data of this one, and of files that were renamed
//! over others, that are neither in a checkpoint nor in it. So after a power failure there are all
//! operations on names up to some point; each file that was synced before that has the data that it
//! had then, or what was done to it later; and a file that has replaced another one is not empty in
//! its place.

mod replayed;

use crate::appended::{Part, append};
use crate::cleaner::Cleaner;
use crate::error::Error;
use crate::index::Index;
use crate::log::Slot;
use crate::pool::Version;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Class, Lower, ObjectId, Operation, PAGE, Transaction};
use std::collections::{BTreeMap, BTreeSet};

pub use replayed::{replay, waiting};

/// What whoever appends knows of the intent log of an epoch. Who knows nothing appends more.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    epoch: Option<u64>,
    index: Index,
    /// The data of these files are in it, up to that transaction.
    data: BTreeMap<ObjectId, u64>,
}

impl Synced {
    /// Takes in what was published since.
    fn catch_up<M: Memory, L>(&mut self, shared: &Shared<M>) -> Result<(), Error<L>> {
        let epoch = shared.durable_epoch();
        if self.epoch != Some(epoch) {
            // The log of the last checkpoint counts, and no other.
            *self = Self { epoch: Some(epoch), index: Index::of(shared), data: BTreeMap::new() };
        }
        self.index.catch_up(shared, u64::MAX).map_err(|why| {
            *self = Self::default();
            Error::Damaged(why.why())
        })
    }
}

impl<M: Memory> Cleaner<M> {
    /// Makes durable what was published of these objects, and all that was done to names before.
    /// False if the intent log has no room: then a checkpoint must do.
    ///
    /// # Errors
    /// [`Error::Damaged`]; those of the layer below; that of an object of these which is damaged,
    /// as what comes to it is dropped.
    pub fn sync<B: Lower>(
        &self,
        below: &mut B,
        objects: &[ObjectId],
    ) -> Result<bool, Error<B::Error>> {
        // What a checkpoint has, the log of those after it need not. And stores that have gone back
        // have another log.
        self.note_taken(below)?;
        let mut synced = self.synced.borrow_mut();
        synced.catch_up(&self.shared)?;
        let index = &synced.index;
        for &object in objects {
            let changed = index.changed(object);
            // One that is made, or gone, replaces whatever there is.
            if changed.is_none_or(|one| one.made.is_none() && one.gone.is_none()) {
                below.attributes(object).map_err(Error::Lower)?;
            }
        }
        let (from, to) = (self.shared.logged(), index.next());
        let mut bytes = Vec::new();
        let mut classes = BTreeMap::new();
        // Many may wait for one file.
        let mut objects: BTreeSet<ObjectId> = objects.iter().copied().collect();
        for number in from..to {
            let (transaction, keeps) = self.without_data(below, index, number, &mut classes)?;
            objects.extend(keeps);
            append(&mut bytes, &Part { number, is_data: false, bytes: transaction.bytes() });
        }
        let mut data = Transaction::new();
        for object in &objects {
            let from = synced.data.get(object).copied().unwrap_or(0);
            self.add_data(&mut data, index, *object, from)?;
        }
        if !data.is_empty() {
            // It is of the last of these, so that a checkpoint which has that has it.
            let number = to.saturating_sub(1);
            append(&mut bytes, &Part { number, is_data: true, bytes: data.bytes() });
        }
        if bytes.is_empty() {
            return Ok(true);
        }
        let done = below.append_intent(&bytes).map_err(Error::Lower)?;
        if done {
            self.shared.set_logged(to);
            synced.data.extend(objects.into_iter().map(|object| (object, to)));
        }
        Ok(done)
    }

    /// A transaction without the data of files; those of directories and the like are in it. And
    /// the files whose data are to be durable with it.
    fn without_data<B: Lower>(
        &self,
        below: &mut B,
        index: &Index,
        number: u64,
        classes: &mut BTreeMap<ObjectId, Class>,
    ) -> Result<(Transaction, Vec<ObjectId>), Error<B::Error>> {
        let Slot::Published(first) = self.shared.slot(number) else {
            return Err(Error::Damaged("a transaction is not in the log"));
        };
        let read = self.shared.read_record(first);
        let (record, _) = read.map_err(|why| Error::Damaged(why.why()))?;
        let (mut kept, mut keeps) = (Transaction::new(), Vec::new());
        for operation in record.transaction.operations() {
            let operation = operation.map_err(|why| Error::Damaged(why.why()))?;
            let object = operation.object();
            match operation {
                Operation::Create { class, .. } => {
                    classes.insert(object, class);
                    kept.add(&operation);
                }
                Operation::Pages { page, frames, .. } => {
                    let class = match classes.get(&object) {
                        Some(class) => *class,
                        None => class_of(below, index, object)?,
                    };
                    classes.insert(object, class);
                    if class == Class::Metadata {
                        for (page, frame) in (page..).zip(frames) {
                            let version = Version::from_number(frame.get());
                            self.add_page(&mut kept, object, page, version)?;
                        }
                    }
                }
                Operation::Keep { object } => keeps.push(object),
                _ => kept.add(&operation),
            }
        }
        Ok((kept, keeps))
    }

    fn add_page<L>(
        &self,
        to: &mut Transaction,
        object: ObjectId,
        page: u64,
        version: Version,
    ) -> Result<(), Error<L>> {
        let mut data = [0; PAGE];
        if !self.shared.read_page(version, object, page, &mut data) {
            return Err(Error::Damaged("a page does not match its checksum"));
        }
        to.add(&Operation::Write { object, page, data: &data });
        Ok(())
    }

    /// What was written to an object by transactions from that one on, and its length.
    fn add_data<L>(
        &self,
        to: &mut Transaction,
        index: &Index,
        object: ObjectId,
        from: u64,
    ) -> Result<(), Error<L>> {
        let Some(changed) = index.changed(object) else { return Ok(()) };
        if changed.is_there() == Some(false) {
            return Ok(());
        }
        for (page, (version, since)) in &changed.pages {
            if let Some(version) = version
                && *since >= from
            {
                self.add_page(to, object, *page, *version)?;
            }
        }
        if let Some((size, _)) = changed.size {
            to.add(&Operation::SetSize { object, size });
        }
        Ok(())
    }
}

fn class_of<B: Lower>(
    below: &mut B,
    index: &Index,
    object: ObjectId,
) -> Result<Class, Error<B::Error>> {
    if let Some((class, _)) = index.changed(object).and_then(|changed| changed.made) {
        return Ok(class);
    }
    match below.attributes(object) {
        Ok(Some(found)) => Ok(found.class),
        // One that is gone again since has no data worth keeping, and to one that is damaged none
        // come.
        Ok(None) => Ok(Class::Data),
        Err(why) if B::is_damaged(&why) => Ok(Class::Data),
        Err(why) => Err(Error::Lower(why)),
    }
}
