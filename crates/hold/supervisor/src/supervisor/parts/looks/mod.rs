//! What was seen by looking again and again, where nothing is told.

pub(crate) mod hang;
pub(crate) mod opened;
pub(crate) mod pauses;
pub(crate) mod place;
pub(crate) mod process;
pub(crate) mod stray;

use crate::stores::Folders;
use hang::Hang;
use opened::OpenedLooks;
use pauses::{RecordPause, SecondLooks};
use place::PlaceLooks;
use process::ProcessLooks;
use stray::StrayLooks;

/// All such looks. None of them knows of another.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// For the place of a file system that is served, and in no place yet.
    pub place: PlaceLooks,
    /// For what another program has mounted.
    pub stray: StrayLooks,
    /// At what a daemon has open of which nobody has said what it works on.
    pub opened: OpenedLooks,
    /// For other mounts of the daemon.
    pub second: SecondLooks,
    /// At the memory that the recorder takes.
    pub record: RecordPause,
    /// At requests that nobody goes on with.
    pub hang: Hang,
    /// At the daemon's process.
    pub process: ProcessLooks,
    /// At what the daemon stores to: their folders, under the policy `buffer`.
    pub stores: Folders,
}
