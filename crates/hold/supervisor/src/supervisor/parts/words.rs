//! What the daemon says on its standard error.

use crate::stderr::{Drained, Tail};
use rustix::fd::BorrowedFd;

/// Its last lines, and when it was heard.
#[derive(Debug, Default)]
pub(crate) struct Words {
    tail: Tail,
    /// When something came last.
    heard: u64,
}

impl Words {
    /// Takes what there is, and passes it on.
    pub fn drain(&mut self, pipe: BorrowedFd<'_>) -> Drained {
        self.tail.drain(pipe)
    }

    /// Something has come. Gives for how long nothing had.
    pub fn note(&mut self, now: u64) -> u64 {
        now.saturating_sub(std::mem::replace(&mut self.heard, now))
    }

    /// The last lines.
    pub fn lines(&self) -> Vec<String> {
        self.tail.lines()
    }

    /// The last lines, which are forgotten with that.
    pub fn take(&mut self) -> Vec<String> {
        self.tail.take()
    }
}
