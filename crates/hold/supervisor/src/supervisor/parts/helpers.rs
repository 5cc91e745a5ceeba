//! Who works for the supervisor beside its event loop. It waits for scouts and backtraces only, and
//! with a limit.

use super::nudge::Nudge;
use crate::autopsy::later::Backtraces;
use crate::mirror::Mirror;
use crate::scout::Scouts;
use std::sync::Arc;

/// All of them.
#[derive(Debug)]
pub(crate) struct Helpers {
    /// Go where one may have to wait for ever.
    pub scouts: Arc<Scouts>,
    /// Make backtraces of the dead.
    pub backtraces: Backtraces,
    /// Does the host's unmounts and remounts again in the successors' namespaces.
    pub mirror: Mirror,
    /// Wakes daemons.
    pub nudge: Nudge,
}

impl Helpers {
    /// Nobody is sent yet.
    pub fn new(mirror: Mirror, nudge: Nudge) -> Self {
        Self { scouts: Arc::default(), backtraces: Backtraces::default(), mirror, nudge }
    }

    /// The processes that work for it: none of the daemon's. Those who make backtraces are asked
    /// for apart, as they come and go.
    pub fn processes(&mut self) -> Vec<u32> {
        let mut all: Vec<u32> = self.nudge.pids().collect();
        all.extend(self.scouts.processes());
        all
    }
}
