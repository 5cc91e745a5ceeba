//! What a layer asks of the one below it.

use crate::credit::Credit;
use crate::id::ObjectId;
use crate::operation::{Class, Operation};

/// Objects that change in checkpoints.
pub trait Lower {
    /// Why it cannot do something.
    type Error: std::error::Error;

    /// The epoch that is under way: that of the next checkpoint.
    ///
    /// # Errors
    /// Those of asking.
    fn epoch(&mut self) -> Result<u64, Self::Error>;

    /// What is known of an object; `None` if there is none.
    ///
    /// # Errors
    /// Those of the stores.
    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Self::Error>;

    /// Whether something fails only until it is fetched: who has asked asks again then, and nothing
    /// is wrong with the object.
    fn is_lacking(_why: &Self::Error) -> bool {
        false
    }

    /// Whether something fails for good: what a disk has there is not what was written, or cannot
    /// be read, now and later. If applying an operation fails of that, nothing was done, and the
    /// layer need not be opened again.
    fn is_damaged(_why: &Self::Error) -> bool {
        false
    }

    /// Reads whole pages of an object that there is, from `page` on: as many as there is room for.
    ///
    /// # Errors
    /// Those of the stores.
    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Self::Error>;

    /// Does one operation.
    ///
    /// # Errors
    /// Those of the stores. The layer is opened again at its last checkpoint then.
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Self::Error>;

    /// Takes a checkpoint of all transactions up to but not including `upto`; gives its epoch.
    ///
    /// # Errors
    /// As for [`Lower::apply`].
    fn checkpoint(&mut self, upto: u64) -> Result<u64, Self::Error>;

    /// Up to which transaction the last checkpoint reaches.
    ///
    /// # Errors
    /// Those of asking.
    fn upto(&mut self) -> Result<u64, Self::Error>;

    /// How much room there is.
    ///
    /// # Errors
    /// Those of the stores.
    fn room(&mut self) -> Result<Room, Self::Error>;

    /// Appends something to the intent log, and makes it durable. False if there is no room: a
    /// checkpoint makes some.
    ///
    /// # Errors
    /// As for [`Lower::apply`].
    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Self::Error>;

    /// What was appended to the intent log since the last checkpoint, in its order. Whoever asks
    /// may find a part of it done already.
    ///
    /// # Errors
    /// Those of the stores.
    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Self::Error>;
}

/// How much room a layer has, in blocks of [`crate::PAGE`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Blocks for files, free or in use.
    pub capacity: u64,
    /// Those that are free, be it after the next checkpoint only.
    pub free: u64,
    /// Those that are free on the fullest store. An object is on one store.
    pub least: u64,
    /// How many stores there are.
    pub stores: u64,
    /// What operations can take for sure, wherever the blocks are that are available, and on
    /// whichever store they take them.
    pub credit: Credit,
}

impl Room {
    /// What is left for transactions that take away, in blocks; of these, half can be pairs.
    pub fn reserve(&self) -> u64 {
        (self.capacity / SHARE).clamp(LEAST, MOST)
    }

    /// What users are told that they can use: without the reserve. Who needs what is free after the
    /// next checkpoint only waits for that.
    pub fn for_users(&self) -> u64 {
        // On each store as many as the fullest one has, so that it does not matter which one it is.
        self.least.saturating_mul(self.stores).saturating_sub(self.reserve())
    }
}

/// The reserve is one block of so many.
const SHARE: u64 = 128;
/// It is at least as much as one transaction can take that takes away: the last page of a file that
/// becomes shorter, which may not have been there, and the names of a file that is still in use.
const LEAST: u64 = 64;
/// More is of no use between two checkpoints.
const MOST: u64 = 4096;

/// What is known of an object besides its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its length in bytes.
    pub size: u64,
    /// How its data are kept.
    pub class: Class,
    /// What the namespace module keeps with it.
    pub attributes: Vec<u8>,
}
