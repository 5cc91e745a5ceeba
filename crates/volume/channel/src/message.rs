//! What can be asked of a store and of a cache. Objects and epochs are numbers, operations as
//! [`belay_object::Transaction`] writes them down: who is asked looks at all of it as at anything
//! that somebody else has written.

use crate::bytes;
use serde::{Deserialize, Serialize};

/// What is asked of the process with the stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreAsk {
    /// The caller is the cache from now on: an earlier one is heard no more.
    Write,
    /// The epoch that is under way.
    Epoch,
    /// What is known of an object.
    Attributes(u64),
    /// Pages of an object.
    Read {
        /// Which one.
        object: u64,
        /// The first page.
        page: u64,
        /// How many.
        count: u32,
    },
    /// One operation is done.
    Apply(#[serde(with = "bytes")] Vec<u8>),
    /// A checkpoint of all transactions up to this one is taken.
    Checkpoint(u64),
    /// Up to which transaction the last one reaches.
    Upto,
    /// How much room there is.
    Room,
    /// Something is appended to the intent log.
    AppendIntent(#[serde(with = "bytes")] Vec<u8>),
    /// How many intents there are.
    Intents,
    /// One of them.
    Intent(u32),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreAnswer {
    /// It is done.
    Done,
    /// An epoch, a number of a transaction, or how many there are.
    Number(u64),
    /// What is known of an object: its length, whether it is metadata, and its attributes.
    Attributes(Option<(u64, bool, Vec<u8>)>),
    /// Pages, or an intent.
    Bytes(#[serde(with = "bytes")] Vec<u8>),
    /// Blocks: all, free, and free on the fullest store; stores; and blocks for sure, alone and in
    /// pairs.
    Room([u64; 6]),
    /// Whether there was room.
    Appended(bool),
    /// It cannot be done, and why.
    Refused(String),
    /// What was asked for is damaged, and how. Nothing was done.
    Damaged(String),
    /// The disk could not read what it takes, and may be able to later.
    Failing(String),
}

/// What is asked of the cache's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheAsk {
    /// Whether the memory is set up, for this mount. It is answered when it is.
    Ready(u64),
    /// A checkpoint is taken.
    Checkpoint,
    /// What was published of these objects is made durable, and all names.
    Sync(Vec<u64>),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheAnswer {
    /// It is done.
    Done,
    /// It cannot be done, and why.
    Refused(String),
}
