//! What is where in a block. Numbers are little-endian. docs/volume-layout.md is the document of
//! it.

use crate::error::{Error, Result};
use crate::geometry::{FANOUT, Geometry, INDEXES};
use crate::pointer::{Checksum, Pointer};
use belay_disk::{BLOCK, Block};
use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How a root begins.
pub const MAGIC: [u8; 8] = *b"belayTFS";
/// The version of this layout.
pub const VERSION: u32 = 2;
/// Stores that a volume can have.
pub const MEMBERS: usize = 32;
/// Inodes in a block.
pub const INODES: u64 = (BLOCK / size_of::<Inode>()) as u64;
/// Bytes of attributes that a file can have.
pub const ATTRIBUTES: usize = 184;
/// The deepest tree: one level for the leaves, and four above them.
pub const DEPTH: u32 = 5;

/// What a block of metadata is. Each kind has its pointers elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The root of a checkpoint.
    Root,
    /// Points to the blocks of 256 groups.
    Index,
    /// Points to the bitmap blocks of a group, and counts its free blocks.
    Group,
    /// Which blocks are in use, a bit each.
    Bitmap,
    /// Points to 256 blocks of a file.
    Indirect,
    /// 16 inodes.
    Inodes,
    /// Data of a file of class [`Protected`](crate::Class::Protected).
    Data,
}

bitflags! {
    /// How a store was made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Made: u32 {
        /// Blocks that are freed may be used again at once.
        const FREES_AT_ONCE = 1;
        /// Data are written in place.
        const IN_PLACE = 2;
    }

    /// What an inode is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// It is in use.
        const USED = 1;
        /// Its data have twins.
        const PROTECTED = 2;
    }
}

/// The root of a checkpoint (block of kind [`Kind::Root`]).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Root {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`Made`].
    pub made: U32,
    /// Which volume it belongs to.
    pub volume: [u8; 16],
    /// Which store it is.
    pub store: [u8; 16],
    /// Blocks of the disk.
    pub blocks: U64,
    /// Blocks of a group.
    pub group_blocks: U32,
    /// How many blocks twins are apart.
    pub twin_offset: U32,
    /// Which checkpoint this is: the timestamp of the paper, which is a counter.
    pub epoch: U64,
    /// The checkpoint before; 0 if there is none.
    pub previous: U64,
    /// The checksum of its root.
    pub previous_checksum: U64,
    /// Inodes that were ever in use.
    pub inodes: U64,
    /// The first of the inodes that are free again, and one more; 0 if there is none.
    pub free_inode: U64,
    /// Free blocks.
    pub free_blocks: U64,
    /// How deep the tree of the inodes is.
    pub inode_depth: U32,
    /// How many stores the volume has.
    pub member_count: U32,
    /// The tree of the inodes.
    pub inode_tree: Pointer,
    /// What the layer above keeps here.
    pub label: [u8; 256],
    /// Where the resynchronization log begins; 0 if there is none.
    pub log_first: U64,
    /// How many blocks it has.
    pub log_blocks: U64,
    /// Where the intent log begins: two areas of equal size.
    pub intent_first: U64,
    /// How many blocks both have.
    pub intent_blocks: U64,
    /// Pairs of places for twins of which both are free.
    pub free_pairs: U64,
    /// How often something was given up that could not be read: what it led to is in use for ever.
    pub given_up: U64,
    reserved: [u8; 584],
    /// The index blocks.
    pub indexes: [Pointer; INDEXES as usize],
    /// The stores of the volume.
    pub members: [[u8; 16]; MEMBERS],
    rest: [u8; 1528],
    /// The checksum of all that is before it.
    pub checksum: U64,
}

/// An inode.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Inode {
    /// [`InodeFlags`].
    pub flags: U32,
    /// How often it has been in use, modulo 2^24: a part of the file's number.
    pub generation: U32,
    /// The length of the file in bytes.
    pub size: U64,
    /// What the layer above calls the file.
    pub owner: U64,
    /// Blocks of the file, indirect ones as well, twins once.
    pub blocks: U64,
    /// How deep its tree is.
    pub depth: U32,
    /// Bytes of attributes.
    pub attributes_length: U32,
    /// Its tree.
    pub tree: Pointer,
    /// Of a free one: the next free one, and one more; 0 if it is the last.
    pub next_free: U64,
    reserved: [u8; 8],
    /// What the layers above keep with it.
    pub attributes: [u8; ATTRIBUTES],
}

/// The block of a group, but its pointers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Group {
    /// Its number, and one more: a block of zeros is none.
    pub number: U64,
    /// Free blocks of it.
    pub free: U64,
}

const _: () = assert!(size_of::<Root>() == BLOCK);
const _: () = assert!(size_of::<Inode>() == 256 && INODES as usize * size_of::<Inode>() == BLOCK);

/// Where in a group block its pointers begin.
const GROUP_POINTERS: usize = 64;
/// Where in a root.
const ROOT_POINTERS: usize = std::mem::offset_of!(Root, indexes);
/// Where in a root the pointer to the inodes is.
pub const INODE_TREE: usize = std::mem::offset_of!(Root, inode_tree);
/// Where in an inode the pointer to its tree is.
const TREE: usize = std::mem::offset_of!(Inode, tree);

/// Where in a root the pointer to an index block is.
pub fn index_slot(index: u64) -> usize {
    ROOT_POINTERS + index as usize * Pointer::SIZE
}

/// Where in a block of pointers one of them is.
pub fn slot(number: u64) -> usize {
    number as usize * Pointer::SIZE
}

/// Where in a group block the pointer to a bitmap block is.
pub fn bitmap_slot(bitmap: u64) -> usize {
    GROUP_POINTERS + bitmap as usize * Pointer::SIZE
}

/// Where in a block an inode is.
pub fn inode_offset(number: u64) -> usize {
    number as usize * size_of::<Inode>()
}

/// Where in a block the pointer of an inode is.
pub fn inode_slot(number: u64) -> usize {
    inode_offset(number) + TREE
}

/// Reads a record of a block; one of zeros if it does not fit.
pub fn read<T: FromBytes + Unaligned + Immutable + KnownLayout>(block: &Block, at: usize) -> T {
    let bytes = block.get(at..at + size_of::<T>());
    bytes.and_then(|bytes| T::read_from_bytes(bytes).ok()).unwrap_or_else(T::new_zeroed)
}

/// A record of a block, where it is; `None` if it does not fit.
pub fn view<T>(block: &Block, at: usize) -> Option<&T>
where
    T: FromBytes + Unaligned + Immutable + KnownLayout,
{
    T::ref_from_bytes(block.get(at..at + size_of::<T>())?).ok()
}

/// The same, to be changed.
pub fn view_mut<T>(block: &mut Block, at: usize) -> Option<&mut T>
where
    T: FromBytes + IntoBytes + Unaligned + KnownLayout,
{
    T::mut_from_bytes(block.get_mut(at..at + size_of::<T>())?).ok()
}

/// Puts a record into a block.
pub fn write<T: IntoBytes + Immutable>(block: &mut Block, at: usize, value: &T) {
    if let Some(bytes) = block.get_mut(at..at + size_of::<T>()) {
        bytes.copy_from_slice(value.as_bytes());
    }
}

/// The checksum of a block that checks itself, with its eight bytes at `at`, and that seed.
pub fn own_checksum(block: &Block, at: usize, seed: u64) -> Checksum {
    let mut copy = *block;
    write(&mut copy, at, &U64::ZERO);
    Checksum::of(seed, &copy)
}

/// The checksum of a root.
pub fn root_checksum(block: &Block) -> Checksum {
    Checksum::of(0, block.get(..BLOCK - 8).unwrap_or_default())
}

impl Kind {
    /// Where in a block of this kind its pointers are.
    pub fn slots(self, geometry: &Geometry) -> impl Iterator<Item = usize> + use<> {
        let (first, step, count) = match self {
            Self::Root => (ROOT_POINTERS, Pointer::SIZE, geometry.indexes()),
            Self::Index | Self::Indirect => (0, Pointer::SIZE, FANOUT),
            Self::Group => (GROUP_POINTERS, Pointer::SIZE, geometry.bitmaps()),
            Self::Inodes => (TREE, size_of::<Inode>(), INODES),
            Self::Bitmap | Self::Data => (0, 0, 0),
        };
        let also = (self == Self::Root).then_some(INODE_TREE);
        (0..count as usize).map(move |number| first + number * step).chain(also)
    }

    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "a root",
            Self::Index => "an index block",
            Self::Group => "a group block",
            Self::Bitmap => "a bitmap block",
            Self::Indirect => "an indirect block",
            Self::Inodes => "an inode block",
            Self::Data => "data",
        }
    }

    /// Whether a block of this kind makes sense in itself. It is looked at before it becomes part
    /// of a checkpoint, and after it was read.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it does not.
    pub fn check(self, block: &Block, geometry: &Geometry) -> Result<()> {
        let wrong = |why| Err(Error::Damaged { what: self.name(), why });
        for slot in self.slots(geometry) {
            let pointer = Pointer::read(block, slot);
            let fixed = matches!(self, Self::Root | Self::Index | Self::Group);
            let end = match pointer.is_twinned() {
                true => pointer.block() + geometry.parameters.twin_offset,
                false => pointer.block(),
            };
            if pointer.is_null() {
                continue;
            }
            if !pointer.is_sound() || end >= geometry.grouped {
                return wrong("a pointer leads out of the store");
            }
            if pointer.is_lost() && matches!(self, Self::Indirect | Self::Inodes) {
                continue;
            }
            if pointer.is_twinned() && !geometry.can_be_left(pointer.block()) {
                return wrong("a pointer leads to no pair of twins");
            }
            let own = fixed && slot != INODE_TREE;
            if geometry.is_reserved(pointer.block()) != own
                || fixed && !pointer.is_twinned()
                || pointer.is_lost()
            {
                return wrong("a pointer leads to what is of another kind");
            }
        }
        match self {
            Self::Group => {
                let group: Group = read(block, 0);
                let Some(number) = group.number.get().checked_sub(1) else {
                    return wrong("it has no number");
                };
                if number >= geometry.groups() || group.free.get() > geometry.capacity_of(number) {
                    return wrong("it counts more than there is");
                }
            }
            Self::Inodes => {
                for number in 0..INODES {
                    read::<Inode>(block, inode_offset(number)).check()?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Inode {
    /// What it is.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }

    fn check(&self) -> Result<()> {
        let wrong = |why| Err(Error::Damaged { what: "an inode", why });
        if InodeFlags::from_bits(self.flags.get()).is_none() {
            return wrong("it has flags that mean nothing");
        }
        if self.depth.get() > DEPTH || (self.depth.get() == 0) != self.tree.is_null() {
            return wrong("its tree is too deep, or not there");
        }
        if self.attributes_length.get() as usize > ATTRIBUTES {
            return wrong("it has more attributes than there is room for");
        }
        if !self.flags().contains(InodeFlags::USED) && !self.tree.is_null() {
            return wrong("it is free, and has blocks");
        }
        Ok(())
    }
}
