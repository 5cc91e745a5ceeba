//! What may still have an effect when a daemon is dead: its connections, and the processes that it
//! has left.

use crate::connections::Connections;
use crate::process::Watched;
use rustix::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender};

/// Work on the late effects of a generation that is under way.
#[derive(Debug)]
pub(crate) struct Fencing {
    /// The processes whose end it sees to.
    processes: Vec<Watched>,
    /// Tells when the gate opens which of them had to be killed.
    told: Receiver<Vec<u32>>,
    /// Dropped when there is time to clear up, so that this does not compete with the successor's
    /// start.
    tidy: Option<Sender<()>>,
}

impl Fencing {
    /// Work that tells by `told` who had to be killed, and clears up when the other end of `tidy`
    /// is gone.
    pub fn new(processes: Vec<Watched>, told: Receiver<Vec<u32>>, tidy: Sender<()>) -> Self {
        Self { processes, told, tidy: Some(tidy) }
    }

    /// The processes that are still to end.
    pub fn alive(&self) -> impl Iterator<Item = &Watched> {
        self.processes.iter().filter(|process| !process.is_dead())
    }

    /// There is time to clear up.
    pub fn let_tidy(&mut self) {
        self.tidy = None;
    }

    /// Waits until it is done; gives who had to be killed.
    pub fn wait(self) -> Vec<u32> {
        self.told.recv().unwrap_or_default()
    }
}

/// Connections of the daemon, and work on the late effects of those before it.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// The daemon's connections, held beside it.
    connections: Connections,
    /// Some life of this daemon had connections.
    connects: bool,
    fencing: Option<Fencing>,
}

impl Late {
    /// Whether the daemon has connections.
    pub fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// The connections of a daemon that has died: the next one has none yet.
    pub fn take_connections(&mut self) -> Connections {
        std::mem::take(&mut self.connections)
    }

    /// Holds those that `daemon` has now, see [`Connections::refresh`].
    pub fn refresh(
        &mut self,
        daemon: &Watched,
        copy: impl FnOnce(&[crate::connections::Wanted]) -> Option<Vec<(u64, OwnedFd)>>,
    ) {
        self.connections.refresh(daemon, copy);
    }

    /// A daemon has died that had `connections`. Gives whether any life of it had some.
    pub fn has_ever_connected(&mut self, connections: &Connections) -> bool {
        self.connects |= !connections.is_empty();
        self.connects
    }

    /// Whether some life of this daemon had connections when it died.
    pub fn connects(&self) -> bool {
        self.connects
    }

    /// The processes that are being seen to.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.fencing.iter().flat_map(Fencing::alive).map(|process| process.pid)
    }

    /// The work that is under way, which another one goes on with.
    pub fn take_fencing(&mut self) -> Option<Fencing> {
        self.fencing.take()
    }

    /// This work is under way.
    pub fn begin(&mut self, fencing: Fencing) {
        self.fencing = Some(fencing);
    }

    /// The successor serves, so the rest may be cleared up. Gives who had to be killed, if that is
    /// known, and was not asked before.
    pub fn clear_up(&mut self) -> Option<Vec<u32>> {
        let fencing = self.fencing.as_mut()?;
        fencing.let_tidy();
        fencing.told.try_recv().ok()
    }
}
