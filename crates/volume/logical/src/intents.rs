//! The intent log of a volume, which is that of its first store.

use crate::volume::{Error, Logical, Result};
use belay_disk::Disk;
use belay_store::Store;
use belay_store::intent::Broken;

fn from_store(why: belay_store::Error) -> Error {
    Error::Store { store: 0, why }
}

impl<D: Disk> Logical<D> {
    /// Appends something to the intent log, and makes it durable. False if there is no room.
    ///
    /// # Errors
    /// Those of the store.
    pub fn append_intent(&mut self, bytes: &[u8]) -> Result<bool> {
        self.store(0)?.append_intent(bytes).map_err(from_store)
    }

    /// The first half of that, for whoever reads while the disks are flushed
    /// ([`Store::begin_append`]). If there is room a flush of all disks comes next, of which the
    /// volume is told ([`Logical::flushed`]), and then [`Logical::end_append`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn begin_append(&mut self, bytes: &[u8]) -> Result<bool> {
        self.store(0)?.begin_append(bytes).map_err(from_store)
    }

    /// The second half.
    ///
    /// # Errors
    /// None of a volume that has a store.
    pub fn end_append(&mut self) -> Result<()> {
        self.store(0).map(Store::end_append)
    }

    /// Ends the intent log where it is damaged, and gives up what is behind that. Only of a volume
    /// to which nothing was done yet.
    ///
    /// # Errors
    /// Those of the store.
    pub fn cut_intents(&mut self) -> Result<Option<Broken>> {
        self.store(0)?.cut_intents().map_err(from_store)
    }
}
