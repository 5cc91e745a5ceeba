//! The POSIX namespace module of a volume (namespace transactions IV-C): files and directories made of objects, one transaction a
//! request.
//!
//! | module | answers |
//! | --- | --- |
//! | [`view`] | what a request sees and changes: all of it is published in the end, or nothing |
//! | [`attributes`] | what is kept of a file beside its data |
//! | [`ids`] | which objects there are |
//! | [`directory`] | how names lead to objects |
//! | [`namespace`] | what requests do |
//!
//! Nothing of a request is kept when it is done: a life of the module that ends loses nothing but requests under way, of each of which
//! all or nothing has happened.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod directory;
pub mod ids;
pub mod namespace;
pub mod view;

pub use attributes::{Kind, Metadata, Time};
pub use namespace::{Caller, Namespace};
pub use view::View;

use rustix::io::Errno;
use thiserror::Error;

/// Why a request fails.
#[derive(Debug, Error)]
pub enum Error<L> {
    /// As the caller is told.
    #[error("{0}")]
    Errno(Errno),
    /// The cache or a layer below it: [`belay_cache::Error::Full`] is waited for, all else is an I/O error for the caller.
    #[error("{0}")]
    Cache(belay_cache::Error<L>),
    /// What is on the volume makes no sense.
    #[error("{0}")]
    Damaged(&'static str),
}

impl<L> From<Errno> for Error<L> {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl<L> From<belay_cache::Error<L>> for Error<L> {
    fn from(why: belay_cache::Error<L>) -> Self {
        Self::Cache(why)
    }
}

/// What the module answers.
pub type Result<T, L> = std::result::Result<T, Error<L>>;

/// The directory at the top.
pub const ROOT: belay_object::ObjectId = belay_object::ObjectId(1);
/// Which objects there are.
pub const IDS: belay_object::ObjectId = belay_object::ObjectId(2);
/// The files that are removed and still in use: a directory without a way to it.
pub const ORPHANS: belay_object::ObjectId = belay_object::ObjectId(3);
/// The first object of users.
pub const FIRST: u64 = 16;
