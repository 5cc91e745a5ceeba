//! The recorder: the memory that the supervisor shares with daemons.

use crate::error::{Error, Result};
use belay_effects::Area;
use belay_image::overlay::{Capacity as OverlayCapacity, Overlay};
use belay_recorder::{Capacity, Control, Layout, Store};
use belay_sys::Mapping;
use rustix::fd::BorrowedFd;
use std::io::ErrorKind;
use std::sync::Arc;

/// The memory, mapped, and what lies where in it. A daemon can write to all of it.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    memory: Arc<Mapping>,
    layout: Layout,
}

impl Recorder {
    /// Maps it.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn map(file: BorrowedFd<'_>) -> Result<Self> {
        let layout = Layout::new(Capacity::MOUNT);
        // One that is too short was made so by a daemon. What is found then is no recorder, and the
        // mount is given up.
        let memory = match Mapping::new(file, layout.bytes()) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => Mapping::blank(layout.bytes()),
            result => result,
        };
        let memory = memory.map_err(|e| Error::system("map", "the recorder", e, ""))?;
        if !memory.guard() {
            tracing::debug!("the recorder is not guarded");
        }
        Ok(Self { memory: Arc::new(memory), layout })
    }

    /// What lies where.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }

    /// Its control block.
    pub fn control(&self) -> Control<'_, Mapping> {
        Control::new(&self.memory, self.layout)
    }

    /// The session's records.
    pub fn store(&self) -> Store<Arc<Mapping>> {
        Store::new(Arc::clone(&self.memory), self.layout)
    }

    /// The logs of what requests do outside of the daemon.
    pub fn area(&self) -> Area<'_, Mapping> {
        Area::new(&*self.memory, self.layout)
    }

    /// What the image differs in from that on the disk.
    pub fn overlay(&self) -> Overlay<'_, Arc<Mapping>> {
        Overlay::new(&self.memory, self.layout.epochs, OverlayCapacity::MOUNT)
    }
}
