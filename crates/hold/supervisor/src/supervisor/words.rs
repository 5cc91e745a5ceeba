//! The daemon's standard error: passed on as it comes, but not line by line if there are many. A
//! daemon that tells of each request would have the supervisor woken for each, on its own
//! processor.

use super::Supervisor;
use super::parts::deadlines::Due;
use super::parts::tokens::STDERR;
use crate::clock;
use crate::stderr::Drained;
use std::os::fd::AsFd;

/// How long lines wait for others, in ns: a pipe (64 KiB) takes what a daemon writes in that time.
const PAUSE: u64 = 2_000_000;

impl Supervisor {
    /// Takes what there is.
    pub(super) fn drain_stderr(&mut self) -> Drained {
        self.words.drain(self.fds.stderr_read.as_fd())
    }

    /// There is something.
    pub(super) fn hear_words(&mut self) {
        let drained = self.drain_stderr();
        let now = clock::now();
        let silent_for = self.words.note(now);
        if drained == Drained::All && silent_for < PAUSE {
            self.heed_words(false);
            self.deadlines.set(Due::Words, now + PAUSE);
        }
    }

    /// Looks without being told; listens again if nothing has come.
    pub(super) fn check_words(&mut self, now: u64) {
        match self.drain_stderr() {
            Drained::Nothing => self.heed_words(true),
            Drained::All => self.deadlines.set(Due::Words, now + PAUSE),
            Drained::More => self.deadlines.set(Due::Words, now),
        }
    }

    fn heed_words(&self, heeded: bool) {
        if let Err(error) = self.events.heed(&self.fds.stderr_read, STDERR, heeded) {
            tracing::warn!("cannot watch the daemon's standard error: {error}");
        }
    }
}
