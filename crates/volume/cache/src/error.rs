//! Why the cache cannot do what it was asked for.

use belay_object::ObjectId;
use thiserror::Error;

/// Why the cache cannot do what it was asked for.
#[derive(Debug, Error)]
pub enum Error<L> {
    /// The memory is full of what is not durable yet. It has room again after the next checkpoint.
    #[error("the cache is full until the next checkpoint")]
    Full,
    /// The layer below has no room for it, and nothing is under way that could make some.
    #[error("no room is left")]
    NoSpace,
    /// There is no such object.
    #[error("there is no {0}")]
    NoObject(ObjectId),
    /// What is in the memory makes no sense.
    #[error("the memory of the cache is damaged: {0}")]
    Damaged(&'static str),
    /// The layer below cannot.
    #[error("{0}")]
    Lower(L),
}
