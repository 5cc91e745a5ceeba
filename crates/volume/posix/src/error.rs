//! Why a request fails.

use rustix::io::Errno;
use thiserror::Error;

/// Why a request fails.
#[derive(Debug, Error)]
pub enum Error<L> {
    /// As the caller is told.
    #[error("{0}")]
    Errno(Errno),
    /// The cache or a layer below it: [`belay_cache::Error::Full`] and [`belay_cache::Error::Held`]
    /// are waited for, all else is an I/O error for the caller. If there is no room that is
    /// [`Errno::NOSPC`]; what cannot be had as direct I/O is [`Errno::INVAL`].
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
        match why {
            belay_cache::Error::NoSpace => Self::Errno(Errno::NOSPC),
            belay_cache::Error::Final => Self::Errno(Errno::INVAL),
            why => Self::Cache(why),
        }
    }
}

/// What the module answers.
pub type Result<T, L> = std::result::Result<T, Error<L>>;
