//! How a new supervisor finds out where the old one was.
//!
//! The lease decides: it names the process that serves, or says that a start was under way. Taking
//! it on is one atomic step, so a half-started successor and this supervisor cannot both win.

use super::Supervisor;
use super::lifecycle::Event;
use super::parts::tokens::PROCESS;
use super::watch::DESTROYED;
use crate::clock;
use crate::detection::Detection;
use crate::process::{Exit, Watched, children};
use crate::role::LACKS;
use std::io;
use std::thread;
use std::time::Duration;

/// How long a first daemon that has not attached may take until it is started again.
const FIRST_ATTACH: Duration = Duration::from_secs(2);

impl Supervisor {
    pub(super) fn take_over(&mut self) {
        self.book.tally.taken_over();
        // Whoever looks at the copies now tells anew.
        self.hear_mirror();
        if !self.control().is_valid() {
            self.give_up(DESTROYED);
            return;
        }
        let lease = self.control().lease();
        // The old supervisor moved the lease on and could not write that down.
        let behind = lease.generation == self.book.generation.wrapping_add(1);
        if behind && self.book.crash.is_none() {
            self.book.tally.crashed();
        }
        if behind {
            self.book.generation = lease.generation;
        }
        self.keep_book();
        if lease.pid == 0 {
            if self.book.generation == 0 {
                self.take_over_first_start();
            } else {
                self.crashed(0, Exit::Unknown, Detection::Takeover, clock::now());
            }
            return;
        }
        // The old supervisor may have died before it could say so; its own patience is over.
        self.control().raise_fence(lease.generation);
        self.control().set_held(lease.generation);
        let adopted = match Watched::find(lease.pid) {
            Ok(Some(watched)) => self.adopt(watched),
            Ok(None) => Ok(false),
            Err(error) => Err(error.into()),
        };
        match adopted {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!("daemon {} is gone", lease.pid);
                self.ended(lease.pid);
                return;
            }
            Err(error) => {
                // Whether it lives is not known, and what follows from that cannot wait: another
                // supervisor looks.
                tracing::warn!("cannot look at process {}: {error}", lease.pid);
                self.live(Event::Ends { code: LACKS });
                return;
            }
        }
        tracing::info!("took over daemon {} (generation {})", lease.pid, self.book.generation);
        self.check_progress();
    }

    /// Watches a process if it lives and is a daemon of this mount; says whether it does.
    ///
    /// # Errors
    /// If that cannot be seen now.
    fn adopt(&mut self, watched: Watched) -> io::Result<bool> {
        let pid = watched.pid;
        let Some(known) = self.may_serve(&watched)? else {
            return Ok(false);
        };
        if let Err(error) = self.events.listen(&watched, PROCESS) {
            tracing::warn!("{error}");
        }
        if self.book.generation > 0 {
            self.helpers.mirror.note(pid);
        }
        self.daemon.is_held_by(watched);
        self.begin_to_look_for_stray();
        if self.book.spawned != Some(pid) {
            self.book.background = Some(known);
            self.keep_book();
        }
        Ok(true)
    }

    /// The first daemon may be on its way. A second one can do no harm, as only one of them gets
    /// the lease, but its messages would confuse.
    fn take_over_first_start(&mut self) {
        let end = clock::now() + FIRST_ATTACH.as_nanos() as u64;
        while clock::now() < end {
            let lease = self.control().lease();
            let watched = Watched::open(lease.pid).filter(|_| lease.pid != 0);
            // One that cannot be seen now is looked at again.
            if watched.is_some_and(|watched| self.adopt(watched).unwrap_or(false)) {
                self.check_progress();
                return;
            }
            let me = std::process::id();
            let mut candidates = children(self.keeper.pid());
            candidates.retain(|pid| *pid != me && !self.config.bystanders.contains(pid));
            let companions = self.companions.processes();
            candidates.retain(|pid| !companions.contains(pid));
            candidates.extend(self.book.spawned);
            let starting = candidates.into_iter().filter_map(Watched::open).any(|w| !w.is_dead());
            if !starting {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.launch();
    }
}
