//! Late effects: what a dead generation had handed to its children and connections may still be
//! carried out, and would overwrite what comes later. So nothing is issued again before that is
//! over. It takes a thread of its own, beside which the successor starts.

use super::Supervisor;
use super::quell::Quell;
use crate::connections::{Connections, Finishing, copies};
use crate::fusermount::is_helper;
use crate::lineage::Lineage;
use crate::process::{Watched, descendants, is_over, may_look_anywhere};
use crate::threads;
use belay_recorder::Control;
use rustix::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Work on the late effects of a generation that is under way.
#[derive(Debug)]
pub(super) struct Fencing {
    /// The processes whose end it sees to.
    processes: Vec<Watched>,
    /// Tells when the gate opens which of them had to be killed.
    told: Receiver<Vec<u32>>,
    /// Dropped when there is time to clear up, so that this does not compete with the successor's
    /// start.
    tidy: Option<Sender<()>>,
}

impl Fencing {
    fn alive(&self) -> impl Iterator<Item = &Watched> {
        self.processes.iter().filter(|process| !process.is_dead())
    }
}

/// What a dead daemon has left.
#[derive(Debug)]
pub(super) struct Left {
    pub alive: Vec<Watched>,
    /// Others have ended while they were looked at, or shortly before: what they had started may not have been seen.
    pub stirs: bool,
}

/// How long clearing up waits for a successor.
const TIDY_AFTER: Duration = Duration::from_secs(5);

impl Supervisor {
    /// The remaining processes of the dead generation; to be asked before the next one starts.
    /// Supervisor and keeper are both subreapers, so whatever the daemon left behind is below one
    /// of them.
    pub(super) fn leftovers(&mut self) -> Vec<Watched> {
        self.left_by(None).alive
    }

    /// What `daemon` has left behind.
    pub(super) fn left_by(&mut self, daemon: Option<u32>) -> Left {
        let belay = self.keeper.belay();
        let mut except = belay.to_vec();
        except.extend(&self.config.bystanders);
        except.extend(self.nudge.pids()); // asks the mount for something, and waits for an answer
        except.extend(self.scouts.processes());
        // Those of an older life are being seen to.
        except.extend(self.fencing.iter().flat_map(Fencing::alive).map(|process| process.pid));
        let mut below = descendants(&belay, &except);
        let apart = self.backtraces.processes();
        below.retain(|pid| Some(*pid) != daemon && !is_helper(*pid) && !apart.contains(pid));
        let found = below.len();
        let open = below.into_iter().filter_map(Watched::open);
        let alive: Vec<Watched> = open.filter(|one| !one.is_dead() && !is_over(one.pid)).collect();
        Left { stirs: alive.len() < found, alive }
    }

    /// How processes of this mount are known.
    pub(super) fn lineage(&self) -> Lineage {
        Lineage::new(self.book.started_ns)
    }

    /// To end what is left of generations before that one.
    fn quell(&self, before: u32) -> Quell {
        Quell {
            lineage: self.lineage(),
            before,
            belay: self.keeper.belay(),
            except: self.config.bystanders.clone(),
            spared: self.fencing.iter().flat_map(Fencing::alive).map(|one| one.pid).collect(),
        }
    }

    /// Ends what is left of generations that were fenced, and of the last one if it did not end by itself: what a daemon leaves at
    /// its own end is its own. What may still have something to deliver is left to end with its connection.
    pub(super) fn quell_at_the_end(&self) {
        let forced = self.book.gave_up || self.book.stop.is_some_and(|stop| stop.at_once);
        let generation = self.book.generation;
        let before = match forced && self.connections.is_empty() {
            true => generation.saturating_add(1),
            false => self.control().fence().min(generation),
        };
        if before > 0 {
            self.quell(before).run();
        }
    }

    /// Lets the successor issue requests as soon as the dead generation can have no effect any
    /// more. `connections` are those that the dead daemon had.
    pub(super) fn fence(&mut self, left: Left, connections: Connections) {
        let generation = self.book.generation;
        self.connects |= !connections.is_empty();
        if !self.connects {
            // No life of this daemon had any, so its successor is not kept waiting for a look.
            self.control().set_held(generation);
        }
        // A life that died before its gate opened has issued nothing, so it has nothing to finish;
        // but it must not open the gate that an older one still keeps shut.
        let issued = self.control().fence().saturating_add(1) >= generation;
        let mut quell = self.quell(generation);
        let before = self.fencing.take();
        let Left { alive: rest, stirs } = left;
        if rest.is_empty() && !stirs && connections.is_empty() && before.is_none() {
            self.control().raise_fence(generation);
            return;
        }
        let (memory, layout) = (Arc::clone(&self.memory), self.layout);
        let (tell, told) = channel();
        let (tidy, time_to_tidy) = channel::<()>();
        let older = before.iter().flat_map(Fencing::alive);
        let processes = rest.iter().chain(older).filter_map(Watched::try_clone).collect();
        threads::beside("fence", move || {
            let mut finishing = None;
            let control = Control::new(&memory, layout);
            let mut killed = if issued {
                let finishing = finishing.insert(connections.finish(rest));
                let killed = finishing.settle();
                if finishing.is_cut() {
                    control.note_cut();
                }
                killed
            } else {
                connections.abandon(&rest)
            };
            killed.extend(before.and_then(|before| before.told.recv().ok()).unwrap_or_default());
            quell.spared.extend(finishing.iter().flat_map(Finishing::carriers));
            killed.extend(quell.run());
            // First tell: the successor's first reply has the report written.
            let _ = tell.send(killed);
            drop(tell);
            control.raise_fence(generation);
            let _ = time_to_tidy.recv_timeout(TIDY_AFTER);
            finishing.map(Finishing::end);
        });
        self.fencing = Some(Fencing { processes, told, tidy: Some(tidy) });
    }

    /// The successor serves: takes down who had to be killed, and lets the rest be cleared up.
    pub(super) fn note_fenced(&mut self) {
        let Some(fencing) = &mut self.fencing else { return };
        if let Ok(killed) = fencing.told.try_recv()
            && let Some(crash) = &mut self.book.crash
        {
            crash.killed = killed;
        }
        fencing.tidy = None;
    }

    /// Holds the daemon's connections, so that its death will not cut them off.
    pub(super) fn hold_connections(&mut self) {
        if let Some(daemon) = self.daemon.holder() {
            let scouts = &self.scouts;
            self.connections.refresh(daemon, |wanted| match may_look_anywhere() {
                true => scouts.copies(daemon, wanted),
                // Only an ancestor may copy them then (Yama). The daemon has no other rights than this process.
                false => Some(copies(daemon.as_fd(), daemon.pid, wanted)),
            });
        }
        self.control().set_held(self.book.generation);
    }
}
