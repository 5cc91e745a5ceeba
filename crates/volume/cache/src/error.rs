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
    /// What was last done to this object is not durable yet, and may be undone. It can be had when
    /// that is known.
    #[error("{0} is held until it is known whether what was done to it stays")]
    Held(ObjectId),
    /// It was to be undone if it cannot be made durable at once, and takes away what nobody could
    /// bring back then.
    #[error("it takes away what could not be brought back")]
    Final,
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
