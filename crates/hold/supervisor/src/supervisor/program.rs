//! Which program a successor is, and whether it can be held.
//!
//! The program is looked for at its path: that is how a daemon gets an update. But what is there
//! may be gone, or not serve. So belay holds the one that has served last, and goes back to it when
//! another fails to start.
//!
//! Invariant: no two starts that fail in a row are of the same of the two, if there are two. What
//! keeps both from serving (a server that is away) is waited for with both.

use super::Supervisor;
use super::parts::deadlines::Due;
use crate::clock;
use crate::clock::SECOND;
use crate::degraded::Kind;
use crate::detection::Detection;
use crate::handover::Note;
use crate::look::{Found, There};
use crate::process::Exit;
use crate::programs::{self, Identity};
use crate::protocol::Answer;

/// When it is first looked whether a new process has loaded the shim: most have by then.
pub(super) const FIRST_LOOK: u64 = SECOND / 50;
/// How often, if it has neither loaded it nor gone on without.
const LOOKS: u64 = SECOND / 5;

impl Supervisor {
    /// Decides which program the next start is of. Gives what is at its path, if it is that.
    pub(super) fn choose_program(&mut self) -> Option<There> {
        // Where nobody can look, it is what it was.
        let found = self.look(&self.config.program);
        let unknown = matches!(found, Found::Unknown);
        let found = found.there();
        let there = found.as_ref().map(|there| Identity::from(there.stat));
        let program = &mut self.book.program;
        let intact = program.served.is_some() && Identity::of(&self.fds.program) == program.served;
        if there == program.served || !intact {
            program.rejected = None;
        }
        let rejected = program.rejected.as_ref().map(|(identity, _)| *identity);
        program.held = intact && there != program.served && (there.is_none() || there == rejected);
        program.started = there.filter(|_| !program.held);
        let gone = program.held && there.is_none() && !unknown;
        if gone {
            let path = self.config.program.display();
            let what = format!(
                "{path} is gone: the daemon runs on from the program that has served, which belay holds. Install it again"
            );
            self.degrade(Kind::Program, &what);
        }
        found.filter(|_| !self.runs_held_program())
    }

    /// Whether the current start is of the held program.
    pub(super) fn runs_held_program(&self) -> bool {
        self.book.program.held
    }

    /// A daemon serves: its program is held from now on.
    pub(super) fn note_program(&mut self) {
        let program = &self.book.program;
        if program.held || program.started.is_none() || program.started == program.served {
            if !program.held {
                self.restored(Kind::Program);
            }
            return;
        }
        let started = program.started;
        if Identity::of(&self.fds.program) != started {
            let there = self.look(&self.config.program).there();
            let is_it = |there: &There| Some(Identity::from(there.stat)) == started;
            // Exchanged again while it was started.
            let Some(new) = there.filter(is_it) else { return };
            self.fds.program = new.pinned;
            self.keeper.pass_on(&Note::Program, &self.fds, "program");
        }
        self.book.program.served = started;
        self.restored(Kind::Program);
        self.keep_book();
    }

    /// A start has failed, for `why`. Whether that was of a new program, and the one that has
    /// served is to be tried at once.
    pub(super) fn falls_back(&mut self, why: &str) -> bool {
        let intact = Identity::of(&self.fds.program);
        let found = self.look(&self.config.program);
        let program = &mut self.book.program;
        if program.held {
            // It is not the program: the next start is of what is at the path.
            program.rejected = None;
            return false;
        }
        if program.served.is_none() || program.served != intact {
            return false;
        }
        match program.started {
            Some(started) if program.started != program.served => {
                program.rejected = Some((started, why.to_owned()));
                true
            }
            // It had just been taken away.
            None => matches!(found, Found::Not(_)),
            _ => false,
        }
    }

    /// Says that a new program does not serve, with what it said itself.
    pub(super) fn tell_of_program(&mut self, words: &[String]) {
        let rejected = self.book.program.rejected.clone();
        let Some((_, why)) = rejected.filter(|_| self.runs_held_program()) else { return };
        let words = match words {
            [] => String::new(),
            words => format!("; its last words: {}", words.join(" / ")),
        };
        let path = &self.config.program;
        let there = self.look(path).there();
        let since = there.and_then(|there| programs::changed_ms(&there.stat));
        let (changed, remedy) = match since.map(clock::rfc3339) {
            Some(since) => (
                format!("was changed ({since}) and does not serve"),
                "`belay restart` tries the new one again",
            ),
            None => ("was changed, did not serve, and is gone".to_owned(), "install it again"),
        };
        let what = format!(
            "{} {changed}: {why}{words}. The daemon runs on from the program that served before, which belay holds; {remedy}",
            path.display()
        );
        self.degrade(Kind::Program, &what);
        self.answer_waiting(|wait| match wait {
            super::parts::clients::Wait::Restart(_) => Some(Answer::Refused { why: what.clone() }),
            _ => None,
        });
    }

    /// Whoever asks for a restart wants the program that is there now, also one that has failed
    /// before.
    pub(super) fn try_new_program(&mut self) {
        self.book.program.rejected = None;
    }

    /// Looks whether what was started can be held: whether it has loaded the shim, or gone on
    /// without.
    pub(super) fn look_for_unheld(&mut self, now: u64) {
        let lease = self.control().lease();
        let waits = lease.generation == self.book.generation && lease.pid == 0;
        let Some(process) = self.daemon.started().filter(|_| waits) else {
            return;
        };
        let Some(why) = programs::unheld(process.pid, &self.fds.shim) else {
            self.deadlines.set(Due::Unheld, now.saturating_add(LOOKS));
            return;
        };
        let path = self.config.program.display();
        let why = format!("{path} runs without belay's library ({why}), so it cannot be held");
        if self.kill_daemon() {
            tracing::error!("{why}: it is ended");
            self.daemon.is_to_die(Detection::Unheld { why }, now);
        } else {
            // No other one may be started beside it.
            self.refuse_daemon(&why);
        }
    }

    /// What is to be said of a process that ended without having loaded the shim.
    pub(super) fn without_shim(&self, exit: Exit) -> &'static str {
        use belay_recorder::control::Instant;
        let attached = self.control().instant(Instant::Attached) != 0;
        match exit {
            Exit::Code(_) if !attached => ", before belay's library was loaded",
            _ => "",
        }
    }
}
