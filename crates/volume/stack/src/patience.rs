//! How long the cache goes on asking stores that die of it.
//!
//! A crash is taken for transient (Loris III-B): the next life does what the last one died of. If
//! it does not, life after life, nobody is served by trying on. Lives are counted, not time: a disk
//! may stand still for as long as it likes.

use crate::place::{Place, Role};
use crate::pulse::{Lives, Pulse};
use anyhow::Result;
use belay_channel::client::Waits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many lives in a row may die of the same. Who kills them at random does not get there.
const MOST: u64 = 16;

/// The patience of one process with the stores.
#[derive(Clone, Debug)]
pub struct Patience {
    pulse: Pulse,
    store: Lives,
    /// Their life at which it began.
    since: Arc<AtomicU64>,
}

impl Patience {
    /// That of the process with this pulse.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn new(place: &Place, pulse: Pulse) -> Result<Self> {
        let store = Lives::of(place, Role::Store)?;
        let since = Arc::new(AtomicU64::new(store.count()));
        Ok(Self { pulse, store, since })
    }

    /// They did what they were asked to do last, and are asked for something else.
    pub fn renew(&self) {
        self.since.store(self.store.count(), Relaxed);
    }

    /// Whether it has come to its end.
    pub fn is_over(&self) -> bool {
        self.store.count().saturating_sub(self.since.load(Relaxed)) >= MOST
    }
}

impl Waits for Patience {
    fn wait(&self, waits: bool) {
        self.pulse.wait(waits);
    }

    fn gives_up(&self) -> bool {
        self.is_over()
    }
}
