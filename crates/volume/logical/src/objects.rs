//! The operations on objects.

use crate::mapping::Mapped;
use crate::volume::{Error, Logical, Result};
use belay_disk::Disk;
use belay_object::{Class, Lower, ObjectId, Operation, Room};

/// What is known of an object besides its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its length in bytes.
    pub size: u64,
    /// How its data are kept.
    pub class: Class,
    /// Blocks that it takes, on all stores.
    pub blocks: u64,
    /// What the namespace module keeps with it.
    pub attributes: Vec<u8>,
}

impl<D: Disk> Logical<D> {
    /// Does one operation.
    ///
    /// # Errors
    /// [`Error::NoObject`], [`Error::Exists`]; [`Error::NoSpace`], where a part of a write may have
    /// been done; those of the stores.
    pub fn apply(&mut self, operation: &Operation<'_>) -> Result<()> {
        self.resolved()?;
        let object = operation.object();
        if let Operation::Create { class, attributes, .. } = *operation {
            return self.create(object, class, attributes);
        }
        if let Operation::Delete { .. } = *operation {
            return self.delete(object);
        }
        let Mapped { store, file } = self.mapped(object)?;
        let one = self.store(store)?;
        let done = match *operation {
            Operation::Create { .. } | Operation::Delete { .. } | Operation::Keep { .. } => Ok(()),
            Operation::Write { page, data, .. } => one.write(file, page, data),
            Operation::Pages { .. } => return Err(Error::Damaged("pages of the cache came down")),
            Operation::SetSize { size, .. } => one.set_size(file, size),
            Operation::SetAttributes { attributes, .. } => one.set_attributes(file, attributes),
            Operation::Punch { page, count, .. } => one.punch(file, page, count),
        };
        done.map_err(from(store))
    }

    fn delete(&mut self, object: ObjectId) -> Result<()> {
        match self.mapped(object) {
            Ok(Mapped { store, file }) => {
                let one = self.store(store)?;
                if one.attributes(file).is_ok_and(|found| found.owner != object.0) {
                    return Err(Error::Damaged("an object's file is another object's"));
                }
                one.delete(file).map_err(from(store))?;
            }
            // Its file stays, and belongs to nobody.
            Err(why) if why.is_unreadable() => {}
            Err(why) => return Err(why),
        }
        self.map(object, None)
    }

    fn create(&mut self, object: ObjectId, class: Class, attributes: &[u8]) -> Result<()> {
        match self.find(object) {
            Ok(Some(_)) => return Err(Error::Exists(object)),
            Ok(None) => {}
            // One of its neighbours is.
            Err(why) if why.is_unreadable() => {}
            Err(why) => return Err(why),
        }
        let store = self.roomiest()?;
        let kept = match class {
            Class::Metadata => belay_store::Class::Protected,
            Class::Data => belay_store::Class::Data,
        };
        let file = self.store(store)?.create(object.0, kept, attributes).map_err(from(store))?;
        match self.map(object, Some(Mapped { store, file })) {
            // It finds no place in the mapping: it is as if it had not been made.
            Err(Error::NoSpace) => {
                self.store(store)?.delete(file).map_err(from(store))?;
                Err(Error::NoSpace)
            }
            done => done,
        }
    }

    /// The store with most room.
    fn roomiest(&self) -> Result<usize> {
        let mut best = (0, 0);
        for (store, one) in self.stores.iter().enumerate() {
            let room = one.available_blocks().map_err(from(store))?;
            if room > best.1 {
                best = (store, room);
            }
        }
        Ok(best.0)
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// [`Error::NoObject`]; those of the stores.
    pub fn attributes(&mut self, object: ObjectId) -> Result<Attributes> {
        let Mapped { store, file } = self.mapped(object)?;
        let found = self.store(store)?.attributes(file).map_err(from(store))?;
        if found.owner != object.0 {
            return Err(Error::Damaged("an object's file is another object's"));
        }
        let class = match found.class {
            belay_store::Class::Protected => Class::Metadata,
            belay_store::Class::Data => Class::Data,
        };
        let (size, blocks, attributes) = (found.size, found.blocks, found.attributes);
        Ok(Attributes { size, class, blocks, attributes })
    }

    /// Whether there is such an object.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn exists(&mut self, object: ObjectId) -> Result<bool> {
        Ok(self.find(object)?.is_some())
    }

    /// Reads whole pages of an object. What was never written, and what is behind its end, is
    /// zeros.
    ///
    /// # Errors
    /// [`Error::NoObject`]; those of the stores: above all that the data are not what was written.
    pub fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<()> {
        let Mapped { store, file } = self.mapped(object)?;
        self.store(store)?.read(file, page, out).map_err(from(store))
    }
}

fn from(store: usize) -> impl Fn(belay_store::Error) -> Error {
    move |why| match why {
        belay_store::Error::NoSpace => Error::NoSpace,
        belay_store::Error::TooLarge => Error::TooLarge,
        why => Error::Store { store, why },
    }
}

impl<D: Disk> Lower for Logical<D> {
    type Error = Error;

    fn epoch(&mut self) -> Result<u64> {
        Ok(Self::epoch(self))
    }

    fn attributes(&mut self, object: ObjectId) -> Result<Option<belay_object::Attributes>> {
        match Self::attributes(self, object) {
            Ok(Attributes { size, class, attributes, .. }) => {
                Ok(Some(belay_object::Attributes { size, class, attributes }))
            }
            Err(Error::NoObject(_)) => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn is_damaged(why: &Error) -> bool {
        use belay_store::Error::Damaged;
        let makes_no_sense =
            matches!(why, Error::Store { why: Damaged { .. }, .. } | Error::Damaged(_));
        makes_no_sense || why.is_unreadable()
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<()> {
        Self::read(self, object, page, out)
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<()> {
        Self::apply(self, operation)
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64> {
        self.set_upto(upto)?;
        Self::checkpoint(self)
    }

    fn upto(&mut self) -> Result<u64> {
        Ok(Self::upto(self))
    }

    fn room(&mut self) -> Result<Room> {
        Self::room(self)
    }

    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool> {
        Self::append_intent(self, bytes)
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>> {
        Self::intents(self)
    }
}
