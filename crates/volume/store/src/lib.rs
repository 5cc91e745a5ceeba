//! TwinFS: a file store, the physical layer of a volume (Loris IV-A). It keeps physical files on
//! one disk.
//!
//! | module | answers |
//! | --- | --- |
//! | [`layout`] | what is where in a block |
//! | [`mod@pointer`] | how a block is pointed to, with its checksum and twin state |
//! | [`geometry`] | where on the disk the blocks with fixed places are |
//! | [`blocks`] | how blocks of the disk are read and written |
//! | [`root`] | which checkpoints a disk has |
//! | [`nodes`] | the metadata blocks in memory, and how they are changed without touching the last checkpoint |
//! | [`bounds`] | how much room operations can take at most, and how much there is for sure |
//! | [`space`] | which blocks are free, and which are to be free after the next checkpoint |
//! | [`tree`] | how a file's blocks are found |
//! | [`lost`] | how files are changed and removed that have blocks which cannot be read |
//! | [`file_id`] | the number of a file |
//! | [`inodes`] | how a file is found, made and removed |
//! | [`files`] | what can be done with a file |
//! | [`overwrites`] | what is to be overwritten in place |
//! | [`resync`] | how data are written in place, and which of them a power failure has met |
//! | [`tail`] | where the intent log ends |
//! | [`intent`] | what is to be done again after a power failure |
//! | [`step`], [`checkpoint`] | how a checkpoint is taken |
//! | [`check`] | whether all of it is as it should be |
//! | [`roles`] | what a block is for |
//! | [`copies`] | what is in the two places of a root |
//!
//! Invariants:
//! - No block that belongs to the last checkpoint is written to, but data of files in place
//!   (`DataMode::InPlace`).
//! - A block that is freed is used again only after the next checkpoint.
//! - Nothing is given out that does not match the checksum in the block that points to it.
//! - A change that fails half way makes the store refuse all further ones, and above all to take a
//!   checkpoint ([`Error::Failed`]): it is opened again at the last checkpoint, and what came after
//!   is done again.

#![forbid(unsafe_code)]

mod blocks;
pub mod bounds;
pub mod check;
mod checkpoint;
mod copies;
mod error;
mod file_id;
mod files;
mod geometry;
mod inodes;
pub mod intent;
pub mod layout;
mod lost;
mod nodes;
mod overwrites;
mod pointer;
pub mod resync;
pub mod roles;
pub mod root;
mod space;
mod step;
mod store;
mod tail;
mod tree;

pub use copies::RootCopy;
pub use error::{Error, Result};
pub use file_id::FileId;
pub use files::Attributes;
pub use geometry::{DataMode, Geometry, Parameters};
pub use inodes::Class;
pub use pointer::{Checksum, Pointer};
pub use root::Identity;
pub use store::Store;
