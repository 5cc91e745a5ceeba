//! Late effects: what a dead generation had handed to its children and connections may still be
//! carried out, and would overwrite what comes later. So nothing is issued again before that is
//! over. It takes a thread of its own, beside which the successor starts.

use super::Supervisor;
use crate::connections::Connections;
use crate::process::{Watched, descendants};
use belay_recorder::Control;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

/// Work on the late effects of a generation that is under way.
#[derive(Debug)]
pub(super) struct Fencing {
    /// The processes whose end it sees to.
    pids: Vec<u32>,
    /// Tells in the end which of them had to be killed.
    told: Receiver<Vec<u32>>,
}

impl Supervisor {
    /// The remaining processes of the dead generation; to be asked before the next one starts.
    /// Supervisor and keeper are both subreapers, so whatever the daemon left behind is below one
    /// of them.
    pub(super) fn leftovers(&self) -> Vec<Watched> {
        let me = std::process::id();
        let belay = [me, self.keeper_pid];
        let mut except = belay.to_vec();
        except.extend(&self.config.bystanders);
        // Those of an older life are being seen to.
        except.extend(self.fencing.iter().flat_map(|fencing| &fencing.pids));
        descendants(&belay, &except)
            .into_iter()
            .filter_map(Watched::open)
            .filter(|watched| !watched.is_dead())
            .collect()
    }

    /// Lets the successor issue requests as soon as the dead generation can have no effect any
    /// more. `connections` are those that the dead daemon had.
    pub(super) fn fence(&mut self, rest: Vec<Watched>, connections: Connections) {
        let generation = self.book.generation;
        self.connects |= !connections.is_empty();
        if !self.connects {
            // No life of this daemon had any, so its successor is not kept waiting for a look.
            self.control().set_held(generation);
        }
        // A life that died before its gate opened has issued nothing, so it has nothing to finish;
        // but it must not open the gate that an older one still keeps shut.
        let issued = self.control().fence().saturating_add(1) >= generation;
        let before = self.fencing.take();
        if rest.is_empty() && connections.is_empty() && before.is_none() {
            self.control().set_fence(generation);
            return;
        }
        let (memory, layout) = (Arc::clone(&self.memory), self.layout);
        let (tell, told) = channel();
        let mut pids: Vec<u32> = rest.iter().map(|process| process.pid).collect();
        pids.extend(before.iter().flat_map(|before| &before.pids));
        std::thread::spawn(move || {
            let end = if issued { Connections::finish } else { Connections::abandon };
            let mut killed = end(connections, &rest);
            killed.extend(before.and_then(|before| before.told.recv().ok()).unwrap_or_default());
            Control::new(&memory, layout).set_fence(generation);
            let _ = tell.send(killed);
        });
        self.fencing = Some(Fencing { pids, told });
    }

    /// Takes down who had to be killed.
    pub(super) fn note_fenced(&mut self) {
        if let Some(killed) = self.fencing.as_ref().and_then(|fencing| fencing.told.try_recv().ok())
            && let Some(crash) = &mut self.book.crash
        {
            crash.killed = killed;
            self.fencing = None;
        }
    }

    /// Holds the daemon's connections, so that its death will not cut them off.
    pub(super) fn hold_connections(&mut self) {
        if let Some(daemon) = &self.daemon {
            self.connections.refresh(daemon);
        }
        self.control().set_held(self.book.generation);
    }
}
