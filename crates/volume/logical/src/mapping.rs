//! Which physical files an object consists of: a table by the object's number, in a file that each
//! store has.

use crate::volume::{Error, Logical, Result};
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use belay_object::{ObjectId, credit};
use belay_store::FileId;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An object in the table. Zeros are none.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
struct Entry {
    /// 1: one file on one store.
    level: U16,
    /// Which store that is.
    store: U16,
    reserved: U32,
    /// The file there.
    file: U64,
    more: [U64; 2],
}

const SINGLE: u16 = 1;
/// What was here could not be read when something beside it was changed.
const LOST: u16 = u16::MAX;
const SIZE: usize = size_of::<Entry>();
const ENTRIES: u64 = (BLOCK / SIZE) as u64;
/// What the layers above are told that an operation takes is what it takes (`belay_store::bounds`).
const _: () = assert!(
    ENTRIES == credit::MAPPED
        && credit::FANOUT == belay_store::bounds::FANOUT
        && credit::LEVELS == belay_store::bounds::LEVELS
);
/// Objects that a volume can have.
const MOST: u64 = 1 << 38;

/// Where an object's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// On which store.
    pub store: usize,
    /// In which file there.
    pub file: FileId,
}

impl<D: Disk> Logical<D> {
    /// Where an object is; `None` if there is none.
    ///
    /// # Errors
    /// If that cannot be read on any store.
    pub(crate) fn find(&mut self, object: ObjectId) -> Result<Option<Mapped>> {
        if object.0 >= MOST {
            return Ok(None);
        }
        let (block, at) = place(object);
        let content = self.mapping_block(block)?;
        let bytes = content.get(at..at + SIZE).unwrap_or_default();
        let Ok(entry) = Entry::read_from_bytes(bytes) else { return Ok(None) };
        match entry.level.get() {
            0 => Ok(None),
            SINGLE => {
                let store = usize::from(entry.store.get());
                Ok(Some(Mapped { store, file: FileId::from_number(entry.file.get()) }))
            }
            LOST => Err(Error::Lost(object)),
            _ => Err(Error::Damaged("an object has a level that there is not")),
        }
    }

    /// The objects of a block of the table.
    pub(crate) fn objects_in(block: u64) -> impl Iterator<Item = ObjectId> {
        let first = block.saturating_mul(ENTRIES);
        (first..first.saturating_add(ENTRIES)).map(ObjectId)
    }

    /// The same, where there must be one.
    pub(crate) fn mapped(&mut self, object: ObjectId) -> Result<Mapped> {
        self.find(object)?.ok_or(Error::NoObject(object))
    }

    /// Reads a block of the mapping from the first store that has it whole.
    fn mapping_block(&mut self, block: u64) -> Result<Block> {
        let mut last = None;
        for (store, (one, mapping)) in self.stores.iter_mut().zip(&self.mappings).enumerate() {
            let mut content = ZEROS;
            match one.read(*mapping, block, &mut content) {
                Ok(()) => return Ok(content),
                Err(why) => last = Some(Error::Store { store, why }),
            }
        }
        Err(last.unwrap_or(Error::Damaged("there is no store")))
    }

    /// Puts an object into the table, or takes it out.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a number beyond those that there can be; [`Error::NoSpace`]; those
    /// of the stores.
    pub(crate) fn map(&mut self, object: ObjectId, mapped: Option<Mapped>) -> Result<()> {
        if object.0 >= MOST {
            return Err(Error::TooLarge);
        }
        let (block, at) = place(object);
        let mut content = match self.mapping_block(block) {
            // No store has it whole: the others in it are lost, and do not keep this one from being
            // made or removed.
            Err(why) if why.is_unreadable() => lost_block(),
            found => found?,
        };
        let entry = mapped.map_or(NONE, |mapped| Entry {
            level: SINGLE.into(),
            store: (mapped.store as u16).into(),
            file: mapped.file.number().into(),
            ..NONE
        });
        if let Some(bytes) = content.get_mut(at..at + SIZE) {
            bytes.copy_from_slice(entry.as_bytes());
        }
        for (store, (one, mapping)) in self.stores.iter_mut().zip(&self.mappings).enumerate() {
            let end = (block + 1) * BLOCK as u64;
            let done = one.write(*mapping, block, &content).and_then(|()| {
                match one.attributes(*mapping)?.size < end {
                    true => one.set_size(*mapping, end),
                    false => Ok(()),
                }
            });
            done.map_err(|why| match why {
                belay_store::Error::NoSpace => Error::NoSpace,
                why => Error::Store { store, why },
            })?;
        }
        Ok(())
    }
}

/// A block of the mapping of whose objects nothing is known.
fn lost_block() -> Block {
    let mut content = ZEROS;
    for entry in content.as_chunks_mut::<SIZE>().0 {
        entry.copy_from_slice(Entry { level: LOST.into(), ..NONE }.as_bytes());
    }
    content
}

/// What a block of the mapping has: objects, each with its store and its file there. `block`: which
/// block of it that is.
pub fn decode(block: u64, content: &Block) -> Vec<(ObjectId, usize, FileId)> {
    let objects = (block.saturating_mul(ENTRIES)..).map(ObjectId);
    let (entries, _) = content.as_chunks::<SIZE>();
    let entries = entries.iter().filter_map(|bytes| Entry::read_from_bytes(bytes).ok());
    let found = objects.zip(entries).filter(|(_, entry)| entry.level == U16::from(SINGLE));
    found
        .map(|(object, entry)| {
            (object, entry.store.get().into(), FileId::from_number(entry.file.get()))
        })
        .collect()
}

const NONE: Entry = Entry {
    level: U16::ZERO,
    store: U16::ZERO,
    reserved: U32::ZERO,
    file: U64::ZERO,
    more: [U64::ZERO; 2],
};

/// In which block of the mapping an object is, and where in that.
fn place(object: ObjectId) -> (u64, usize) {
    (object.0 / ENTRIES, (object.0 % ENTRIES) as usize * SIZE)
}
