//! Who wakes a daemon that is asleep.

use crate::clock::SECOND;
use crate::waker::Waker;
use rustix::fd::OwnedFd;
use std::process::Child;

/// How long a successor may take before it is thought to be asleep; then twice as long, and so on.
pub(crate) const FIRST: u64 = SECOND / 20;
/// The longest pause.
const LONGEST: u64 = SECOND;
/// So many may wait for their answers at a time. What one asks may have been taken and wait itself
/// for something that goes on when somebody is woken again.
const MOST: usize = 8;

/// What is done about daemons that sleep.
#[derive(Debug)]
pub(crate) struct Nudge {
    /// Wakes by the device.
    waker: Waker,
    /// Ask the mount for something, and may wait for long. What the last one asks may be unread,
    /// what the others ask is not.
    children: Vec<Child>,
    /// How often the shim has asked for it.
    asked: u64,
    /// The generation that was nudged last, and the pause after that.
    last: Option<(u32, u64)>,
}

impl Nudge {
    /// Nobody asks yet.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { waker, children: Vec::new(), asked: 0, last: None }
    }

    /// Wakes one of the daemon's threads, see [`Waker::kick`].
    pub(crate) fn kick(&self, device: OwnedFd, file: Option<u64>, worth: bool) {
        self.waker.kick(device, file, worth);
    }

    /// Whether the kernel has refused that, when it was worth a request, since this was asked last.
    pub(crate) fn was_refused(&self) -> bool {
        self.waker.was_refused()
    }

    /// Whether the shim has asked for it since this was asked last. `asked`: how often it has so
    /// far. As long as no more may ask the mount, that is not heard, and comes out when one of them
    /// has ended.
    pub(crate) fn is_asked(&mut self, asked: u64) -> bool {
        self.look();
        !self.is_enough() && std::mem::replace(&mut self.asked, asked) != asked
    }

    /// How long the daemon of `generation`, which is nudged now, has until the next time.
    pub(crate) fn pause(&mut self, generation: u32) -> u64 {
        let pause = match self.last {
            Some((of, pause)) if of == generation => pause.saturating_mul(2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some((generation, pause));
        pause
    }

    /// How many ask the mount for something.
    pub(crate) fn asking(&mut self) -> usize {
        self.look();
        self.children.len()
    }

    /// Whether no more may ask.
    pub(crate) fn is_enough(&self) -> bool {
        self.children.len() >= MOST
    }

    /// This process asks.
    pub(crate) fn add(&mut self, child: Child) {
        self.children.push(child);
    }

    /// Whether nobody asks, as far as was looked.
    pub(crate) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// The processes that ask, which are nobody's leftovers.
    pub(crate) fn pids(&mut self) -> impl Iterator<Item = u32> {
        self.look();
        self.children.iter().map(Child::id)
    }

    /// Those that have ended are forgotten: their numbers are others' by and by. Somebody else may
    /// have reaped one: then it is not there either.
    fn look(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Ends them. What the last one asks goes with it if nobody has read that.
    pub(crate) fn end(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            // It may take a moment. Then it is reaped with all others.
            let _ = child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::process::Command;

    #[test]
    fn what_finds_no_room_is_heard_when_there_is_some() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd");
        let mut nudge = Nudge::new(Waker::start(&event).expect("a thread"));
        assert!(nudge.is_asked(1) && !nudge.is_asked(1));
        for _ in 0..MOST {
            nudge.add(Command::new("sleep").arg("60").spawn().expect("sleep"));
        }
        assert!(!nudge.is_asked(2), "there is no room");
        let mut one = nudge.children.remove(0);
        let (killed, ended) = (one.kill(), one.wait());
        assert!(nudge.is_asked(2), "one has ended");
        assert!(!nudge.is_asked(2));
        nudge.end();
        killed.and(ended.map(drop)).expect("the end of it");
    }
}
