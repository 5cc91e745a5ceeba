//! What the layer keeps in the root of each store.

use crate::volume::{Error, Result};
use belay_store::FileId;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"belayLOG";
const VERSION: u32 = 2;
/// No transaction has a number that is near this.
const MOST: u64 = 1 << 62;

/// A label, which is a part of each checkpoint.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Label {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    /// The physical file with the mapping.
    mapping: U64,
    /// Up to which transaction the checkpoint reaches: the same on all stores.
    pub(crate) upto: U64,
    /// By which opening the checkpoint was taken: the same on all stores
    /// ([`crate::Logical::begin_branch`]).
    pub(crate) branch: U64,
    rest: [u8; 216],
}

impl Label {
    /// That of a volume that is made.
    pub(crate) fn new(mapping: FileId) -> Self {
        let (magic, version) = (MAGIC, VERSION.into());
        Self { magic, version, mapping: mapping.number().into(), ..Self::new_zeroed() }
    }

    /// One that was read.
    pub(crate) fn read(bytes: &[u8; 256]) -> Result<Self> {
        let bad = |why: &str| Err(Error::NoVolume(why.to_owned()));
        match Self::read_from_bytes(bytes) {
            Ok(label) if label.magic == MAGIC && label.version.get() == VERSION => {
                match label.upto.get() < MOST {
                    true => Ok(label),
                    false => bad("what is on its stores makes no sense"),
                }
            }
            _ => bad("what is on its stores is of another kind, or version"),
        }
    }

    pub(crate) fn mapping(&self) -> FileId {
        FileId::from_number(self.mapping.get())
    }

    pub(crate) fn to_bytes(self) -> [u8; 256] {
        self.as_bytes().try_into().unwrap_or([0; 256])
    }

    /// Whether both are of one checkpoint of the volume.
    pub(crate) fn is_with(&self, other: &Self) -> bool {
        self.upto == other.upto && self.branch == other.branch
    }
}
