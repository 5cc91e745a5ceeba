//! Late effects: what a dead generation had handed to its children and connections may still be
//! carried out, and would overwrite what comes later. So nothing is reissued before that is
//! over. It takes a thread of its own, beside which the successor starts.

use super::Supervisor;
use super::parts::late::Fencing;
use super::quell::Quell;
use crate::connections::{Connections, Finishing, copies};
use crate::fusermount::is_helper;
use crate::heartbeat;
use crate::lineage::Lineage;
use crate::process::{OURS, Watched, descendants, is_over, may_look_anywhere, reap};
use crate::threads;
use rustix::fd::AsFd;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a dead daemon has left.
#[derive(Debug)]
pub(super) struct Left {
    pub alive: Vec<Watched>,
    /// Others have ended while they were looked at, or shortly before: what they had started may
    /// not have been seen.
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
        except.extend(self.helpers.processes());
        except.extend(self.companions.processes());
        except.extend(self.standby.pid());
        // Those of an older life are being seen to.
        except.extend(self.late.processes());
        let mut below = descendants(&belay, &except);
        let apart = self.helpers.backtraces.processes();
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
            spared: self.late.processes().collect(),
        }
    }

    /// Ends what is left of generations that were fenced, and of the last one if it did not end by
    /// itself: what a daemon leaves at its own end is its own. What may still have something to
    /// deliver is left to end with its connection.
    pub(super) fn quell_at_the_end(&mut self) {
        let forced = self.book.tries.gave_up || self.book.stop.is_some_and(|stop| stop.at_once);
        let generation = self.book.generation;
        let before = match forced && !self.late.has_connections() {
            true => generation.saturating_add(1),
            false => self.control().fence().min(generation),
        };
        if before > 0 {
            self.quell(before).run_at_the_end(|| self.remember(reap()));
        }
    }

    /// Lets the successor issue requests as soon as the dead generation can have no effect any
    /// more. `connections` are those that the dead daemon had.
    pub(super) fn fence(&mut self, left: Left, connections: Connections) {
        let generation = self.book.generation;
        if !self.late.has_ever_connected(&connections) {
            // No life of this daemon had any, so its successor is not kept waiting for a look.
            self.control().set_held(generation);
        }
        // A life that died before its gate opened has issued nothing, so it has nothing to finish;
        // but it must not open the gate that an older one still keeps shut.
        let issued = self.control().fence().saturating_add(1) >= generation;
        let mut quell = self.quell(generation);
        let before = self.late.take_fencing();
        let Left { alive: rest, stirs } = left;
        if rest.is_empty() && !stirs && connections.is_empty() && before.is_none() {
            self.control().raise_fence(generation);
            return;
        }
        let recorder = self.recorder.clone();
        let (tell, told) = channel();
        let (tidy, time_to_tidy) = channel::<()>();
        let older = before.iter().flat_map(Fencing::alive);
        let processes = rest.iter().chain(older).filter_map(Watched::try_clone).collect();
        let mut fencing = Fencing::new(processes, told, tidy);
        let work = move || {
            let mut finishing = None;
            let control = recorder.control();
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
            killed.extend(before.map(Fencing::wait).unwrap_or_default());
            quell.spared.extend(finishing.iter().flat_map(Finishing::carriers));
            killed.extend(quell.run());
            // First tell: the successor's first reply has the report written.
            let _ = tell.send(killed);
            drop(tell);
            control.raise_fence(generation);
            let _ = time_to_tidy.recv_timeout(TIDY_AFTER);
            finishing.map(Finishing::end);
        };
        // Where it is done here no successor could tell that it has time.
        threads::beside_or("fence", work, || {
            fencing.let_tidy();
            heartbeat::beat(&self.fds.ledger, true);
        });
        self.late.begin(fencing);
    }

    /// The successor serves: takes down who had to be killed, and lets the rest be cleared up.
    pub(super) fn note_fenced(&mut self) {
        if let Some(killed) = self.late.clear_up()
            && let Some(crash) = &mut self.book.crash
        {
            crash.killed = killed;
        }
    }

    /// Holds the daemon's connections, so that its death will not cut them off.
    pub(super) fn hold_connections(&mut self) {
        // Those to its companions are not: what they are told does no harm if it arrives late, or
        // twice.
        let talks_to_others = self.config.companions.is_empty();
        if let Some(daemon) = self.daemon.holder().filter(|_| talks_to_others) {
            let scouts = &self.helpers.scouts;
            self.late.refresh(daemon, |wanted| match may_look_anywhere() {
                true => scouts.copies(daemon, wanted),
                // Only an ancestor may copy them then (Yama). The daemon has no other rights than
                // this process.
                false => {
                    let (process, wanted) = (daemon.try_clone()?, wanted.to_vec());
                    let copy = move || copies(process.as_fd(), process.pid, &wanted);
                    OURS.at(daemon.pid, copy).ok()
                }
            });
        }
        self.control().set_held(self.book.generation);
    }
}
