//! Starting a generation.
//!
//! Invariant: the lease is `{generation, 0}` before a process of that generation is started, or let
//! through its gate ([`super::standby`]), and the instants are cleared only then, when nobody can
//! set them.

use super::Supervisor;
use super::lifecycle::Event;
use super::parts::deadlines::Due;
use crate::clock;
use crate::error::passes;
use crate::ledger::Life;
use crate::look::There;
use crate::process::Watched;
use belay_recorder::control::{Counter, Options};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::time::{Duration, Instant};

/// How often the way to the mountpoint is looked for again.
const LOOKS: u32 = 100;
/// For how long, at the most.
const LOOKING: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Starts the generation that the book names. A failure becomes a start failure or a crash.
    pub(super) fn launch(&mut self) {
        self.mark_stores();
        self.live(Event::Starts);
        self.daemon.take_cause();
        self.deadlines.cancel(Due::Retiring);
        self.deadlines.cancel(Due::Standby);
        self.looks.hang.clear();
        let program = self.choose_program();
        self.tidy_mailbox();
        self.take_off_seconds();
        let now = clock::now();
        self.deadlines.set(Due::Unheld, now + super::program::FIRST_LOOK);
        self.begin_to_look_for_stray();
        self.looks.record.reset();
        self.deadlines.set(Due::Look, now);
        self.calm_event();
        self.control().clear_instants();
        let control = self.control();
        control.set_poison_after(self.config.poison_after);
        self.book.life = Life {
            started_ns: clock::now(),
            process_started: 0,
            requests: control.counter(Counter::Requests),
            poisoned: control.counter(Counter::Poisoned),
            restored: (
                control.counter(Counter::NodesRestored),
                control.counter(Counter::HandlesRestored),
                control.counter(Counter::LocksRestored),
            ),
        };
        self.limit_start();
        self.begin_to_watch_start();
        match self.spawn(program) {
            Ok((watched, started)) => {
                tracing::debug!("generation {} is process {}", self.book.generation, watched.pid);
                self.book.spawned = Some(watched.pid);
                self.book.background = None;
                self.book.life.process_started = started;
                if let Some(crash) = &mut self.book.crash {
                    crash.spawned_ns = clock::now();
                }
                // The number may have belonged to a process before.
                self.exits.forget(watched.pid);
                self.daemon.is_started(watched);
                self.keep_book();
            }
            Err(error) => self.not_started(&error),
        }
        // An edge of the dead one is no event any more if its counter was emptied before anybody
        // looked.
        self.hear_daemon();
    }

    /// Makes the event counter what it was at first, whatever a daemon has done to it: one that is
    /// full, or makes its writers wait, would hold up the next generation.
    fn calm_event(&self) {
        let event = &self.fds.event;
        let flags = fcntl_getfl(event).unwrap_or(OFlags::RDWR);
        if !flags.contains(OFlags::NONBLOCK) {
            let _ = fcntl_setfl(event, flags | OFlags::NONBLOCK);
        }
        // Never a plain read: somebody may have changed that again.
        let here = u64::MAX;
        let mut count = [0; 8];
        let _ = preadv2(event, &mut [IoSliceMut::new(&mut count)], here, ReadWriteFlags::NOWAIT);
    }

    /// Starts the process; gives when that was, in clock ticks since the system's start. `program`:
    /// the file, if it was looked at already.
    fn spawn(&mut self, mut program: Option<There>) -> io::Result<(Watched, u64)> {
        let begin = Instant::now();
        for _ in 0..LOOKS {
            match self.spawn_once(program.take(), false) {
                // Somebody has exchanged folders on the way to the mountpoint in that very moment.
                Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => {}
                done => return done,
            }
            if begin.elapsed() > LOOKING {
                break;
            }
        }
        self.spawn_once(None, true)
    }

    /// The choices for a generation as its shim is told of them.
    pub(super) fn options_of_start(&self) -> Options {
        let mut options = self.options();
        options.set(
            Options::VOLATILE_INODES,
            options.contains(Options::VOLATILE_INODES) || self.is_same_medium(),
        );
        options
    }

    /// The choices for a generation: what the user chose, and what was learnt since. Of none of it
    /// the recorder is asked, which daemons can write to.
    pub(super) fn options(&self) -> Options {
        let mut options = self.config.options();
        if self.book.resend == Some(false) {
            options |= Options::NO_RESEND;
        }
        if self.book.content.read_only.is_some() {
            options |= Options::READ_ONLY;
        }
        options
    }

    fn not_started(&mut self, error: &io::Error) {
        self.live(Event::NotStarted { passes: passes(error), why: error.to_string() });
        if self.life.ended().is_none() {
            self.tell_of_wait(&[]);
            self.keep_book();
        }
    }
}
