//! The daemon's standard error: passed on as it comes, but not line by line if there are many. A daemon that tells of each
//! request would have the supervisor woken for each, on its own processor.

use super::deadlines::Due;
use super::{STDERR, Supervisor};
use crate::clock;
use crate::stderr::Drained;
use rustix::event::epoll;
use std::os::fd::AsFd;

/// How long lines wait for others, in ns: a pipe (64 KiB) takes what a daemon writes in that time.
const PAUSE: u64 = 2_000_000;

/// When the daemon was heard.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// When something came last.
    heard: u64,
}

impl Supervisor {
    /// Takes what there is.
    pub(super) fn drain_stderr(&mut self) -> Drained {
        self.tail.drain(self.fds.stderr_read.as_fd())
    }

    /// There is something.
    pub(super) fn hear_words(&mut self) {
        let drained = self.drain_stderr();
        let now = clock::now();
        if drained == Drained::All && now.saturating_sub(self.words.heard) < PAUSE {
            self.listen_to_words(epoll::EventFlags::empty());
            self.deadlines.set(Due::Words, now + PAUSE);
        }
        self.words.heard = now;
    }

    /// Looks without being told; listens again if nothing has come.
    pub(super) fn check_words(&mut self, now: u64) {
        match self.drain_stderr() {
            Drained::Nothing => self.listen_to_words(epoll::EventFlags::IN),
            Drained::All => self.deadlines.set(Due::Words, now + PAUSE),
            Drained::More => self.deadlines.set(Due::Words, now),
        }
    }

    fn listen_to_words(&self, events: epoll::EventFlags) {
        let token = epoll::EventData::new_u64(STDERR);
        let done = epoll::modify(&self.epoll, &self.fds.stderr_read, token, events);
        if let Err(error) = done {
            tracing::warn!("cannot watch the daemon's standard error: {error}");
        }
    }
}
