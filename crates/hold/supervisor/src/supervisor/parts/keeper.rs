//! The keeper, as the supervisor sees it.

use crate::clock::SECOND;
use crate::handover::{Descriptors, Link, Note, Received};
use crate::process::readable;
use rustix::fd::AsFd;
use std::time::Duration;

/// A keeper that lives for less is not replaced at once: the next one would die of the same.
const SHORT: u64 = SECOND;
/// The longest pause.
const LONGEST: u64 = 30 * SECOND;

/// How long to wait with a new keeper, when the last one has lived for `lived`, and came after such
/// a pause.
fn pause(lived: u64, before: u64) -> u64 {
    if lived < SHORT { before.saturating_mul(2).clamp(SECOND / 10, LONGEST) } else { 0 }
}

/// The keeper, as the supervisor sees it.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// `None` while there is none.
    link: Option<Link>,
    pid: u32,
    /// When this supervisor has started it; 0 if another one has.
    started: u64,
    /// The pause that came before its start.
    pause: u64,
}

impl Keeper {
    /// The one that has started this supervisor.
    pub fn new(link: Link, pid: u32) -> Self {
        Self { link: Some(link), pid, started: 0, pause: 0 }
    }

    /// Its process; 0 if there is none.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Belay's own two processes.
    pub fn belay(&self) -> [u32; 2] {
        [std::process::id(), self.pid]
    }

    /// The link to it.
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Tells it something, if it is there.
    pub fn tell(&self, note: &Note) {
        if let Some(link) = &self.link {
            let _ = link.send(note);
        }
    }

    /// Gives it all descriptors anew, one of which, called `what`, is another now.
    pub fn pass_on(&self, note: &Note, fds: &Descriptors, what: &str) {
        if let Some(link) = &self.link
            && let Err(why) = link.send_descriptors(note, fds)
        {
            tracing::warn!("the keeper does not get the new {what}: {why}");
        }
    }

    /// Waits so long for a note of its.
    pub fn await_note(&self, limit: Duration) -> Received {
        let Some(link) = &self.link else { return Received::Closed };
        readable(link.as_fd(), limit);
        link.receive(false)
    }

    /// It has died. Gives how long to wait with the next one.
    pub fn died(&mut self, now: u64) -> u64 {
        self.link = None;
        self.pid = 0;
        self.pause = pause(now.saturating_sub(self.started), self.pause);
        self.pause
    }

    /// Another one was started.
    pub fn is_replaced(&mut self, link: Link, pid: u32, now: u64) {
        (self.link, self.pid, self.started) = (Some(link), pid, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keepers_that_die_at_once_are_waited_with() {
        assert_eq!(pause(SECOND, 0), 0);
        assert_eq!((pause(0, 0), pause(1, SECOND)), (SECOND / 10, 2 * SECOND));
        assert_eq!((pause(0, u64::MAX), pause(60 * SECOND, LONGEST)), (LONGEST, 0));
    }
}
