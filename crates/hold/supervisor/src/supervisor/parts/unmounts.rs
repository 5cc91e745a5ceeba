//! A mount that is being taken off because somebody has asked for it (`belay stop`).

use crate::mounts::removal::Removed;
use crate::protocol::StopHow;
use std::sync::mpsc::Receiver;

/// A mount that a thread is taking off: unmounting may wait for the daemon.
#[derive(Debug)]
struct UnderWay {
    how: StopHow,
    removed: Receiver<Removed>,
}

/// Whether one is being taken off, or cannot be for want of something.
#[derive(Debug, Default)]
pub(crate) struct Unmounts {
    under_way: Option<UnderWay>,
    /// Since when no thread can be had to unmount by.
    lacking_since: Option<u64>,
}

impl Unmounts {
    /// A thread takes it off in this way, and will tell what has become of it.
    pub fn begin(&mut self, how: StopHow, removed: Receiver<Removed>) {
        self.under_way = Some(UnderWay { how, removed });
    }

    /// Whether a thread is at it.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// What has become of it, once.
    pub fn take_done(&mut self) -> Option<(StopHow, Removed)> {
        let UnderWay { how, removed } = self.under_way.as_ref()?;
        let done = (*how, removed.try_recv().ok()?);
        self.under_way = None;
        Some(done)
    }

    /// No thread can be had now. Gives since when that is so.
    pub fn lacks(&mut self, now: u64) -> u64 {
        *self.lacking_since.get_or_insert(now)
    }

    /// Whether none could be had when one was last tried for.
    pub fn is_lacking(&self) -> bool {
        self.lacking_since.is_some()
    }

    /// One could be had, or none is needed.
    pub fn lacks_nothing(&mut self) {
        self.lacking_since = None;
    }
}
