//! The process of the stores, as the others see it: it opens them when it is asked for something, and begins anew after an error.

use crate::disk::SimDisk;
use crate::memory::SimMemory;
use belay_logical::Logical;
use belay_object::{Attributes, Lower, ObjectId, Operation, Room};
use std::fmt::Display;

/// Why nothing is to be had of the stores.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Down(String);

fn down(why: impl Display) -> Down {
    Down(why.to_string())
}

/// The stores, whose process dies with their power.
#[derive(Debug)]
pub struct Stores<'d> {
    disks: &'d [SimDisk],
    volume: Option<Logical<&'d SimDisk>>,
    /// Who asks: a dead one asks for nothing.
    by: Option<SimMemory>,
}

impl<'d> Stores<'d> {
    /// On these disks, not opened yet.
    pub fn new(disks: &'d [SimDisk]) -> Self {
        Self { disks, volume: None, by: None }
    }

    /// The disks.
    pub fn disks(&self) -> &'d [SimDisk] {
        self.disks
    }

    /// The next life of the process begins.
    pub fn restart(&mut self) {
        self.volume = None;
    }

    /// Who asks from now on.
    pub fn asked_by(&mut self, by: Option<SimMemory>) {
        self.by = by;
    }

    /// The layers, which are opened if they are not.
    ///
    /// # Errors
    /// Those of opening.
    pub fn volume(&mut self) -> Result<&mut Logical<&'d SimDisk>, Down> {
        if self.by.as_ref().is_some_and(SimMemory::is_dead) {
            return Err(down("who asks is dead"));
        }
        if self.volume.as_ref().is_some_and(Logical::is_unresolved) {
            // What could not be read is looked for again.
            self.volume = None;
        }
        if self.volume.is_none() {
            self.volume = Some(Logical::open(self.disks.iter().collect()).map_err(down)?);
        }
        self.volume.as_mut().ok_or_else(|| down("it is not open"))
    }

    /// After an error nothing is known of what is in memory.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Logical<&'d SimDisk>) -> belay_logical::Result<T>,
    ) -> Result<T, Down> {
        let changed = change(self.volume()?).map_err(down);
        if changed.is_err() {
            self.volume = None;
        }
        changed
    }
}

impl Lower for Stores<'_> {
    type Error = Down;

    fn epoch(&mut self) -> Result<u64, Down> {
        Lower::epoch(self.volume()?).map_err(down)
    }

    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Down> {
        Lower::attributes(self.volume()?, object).map_err(down)
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Down> {
        self.volume()?.read(object, page, out).map_err(down)
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Down> {
        self.change(|volume| volume.apply(operation))
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64, Down> {
        self.change(|volume| Lower::checkpoint(volume, upto))
    }

    fn upto(&mut self) -> Result<u64, Down> {
        Lower::upto(self.volume()?).map_err(down)
    }

    fn room(&mut self) -> Result<Room, Down> {
        self.volume()?.room().map_err(down)
    }

    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Down> {
        self.change(|volume| volume.append_intent(bytes))
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Down> {
        self.volume()?.intents().map_err(down)
    }
}

/// Stores that do not answer.
#[derive(Debug)]
pub struct Away;

impl Lower for Away {
    type Error = Down;

    fn epoch(&mut self) -> Result<u64, Down> {
        Err(down("a disk stalls"))
    }
    fn attributes(&mut self, _: ObjectId) -> Result<Option<Attributes>, Down> {
        Err(down("a disk stalls"))
    }
    fn read(&mut self, _: ObjectId, _: u64, _: &mut [u8]) -> Result<(), Down> {
        Err(down("a disk stalls"))
    }
    fn apply(&mut self, _: &Operation<'_>) -> Result<(), Down> {
        Err(down("a disk stalls"))
    }
    fn checkpoint(&mut self, _: u64) -> Result<u64, Down> {
        Err(down("a disk stalls"))
    }
    fn upto(&mut self) -> Result<u64, Down> {
        Err(down("a disk stalls"))
    }
    fn room(&mut self) -> Result<Room, Down> {
        Err(down("a disk stalls"))
    }
    fn append_intent(&mut self, _: &[u8]) -> Result<bool, Down> {
        Err(down("a disk stalls"))
    }
    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Down> {
        Err(down("a disk stalls"))
    }
}
