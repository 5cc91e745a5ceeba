//! What is known of commits and of the checkpoints that were asked for, under the policy `epoch`.

use crate::clock::SECOND;
use crate::committer::{Committer, Failing};
use std::os::fd::OwnedFd;

/// What an epoch may have in memory without any of it being given back, in bytes.
const WORTH: u64 = 32 << 20;
/// How soon one that somebody waits for is asked for again, in nanoseconds.
const SOON: u64 = SECOND / 4;

/// Whether what is sealed reaches the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    /// Nobody is to commit anything.
    None,
    /// As far as is known.
    Fine,
    /// Not now.
    Failing(Failing),
}

/// What comes of the time at which a checkpoint may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The next such time.
    pub next: u64,
    /// One is called for.
    pub due: bool,
    /// Whether nobody has asked for anything since the last time; `None` if that is not to be
    /// looked at now.
    pub idle: Option<bool>,
}

/// The committer, and what it is asked and told.
#[derive(Debug, Default)]
pub(crate) struct CommitDesk {
    /// Brings sealed epochs to the image.
    committer: Option<Committer>,
    /// Why there is none though there should be.
    lacking: Option<Failing>,
    /// The failed try of which those who wait were told last. The daemon that hears of one tells of
    /// something new itself, so each try is told once, however often it is looked at.
    declared: Option<(u64, u32)>,
    /// How many requests there had been when a checkpoint could be asked for last.
    requests: u64,
    /// It is asked for soon again, as somebody waits for one.
    again: bool,
    /// An epoch has taken more memory than short ones need.
    bloated: bool,
}

impl CommitDesk {
    /// Whether there is a committer.
    pub fn has_committer(&self) -> bool {
        self.committer.is_some()
    }

    /// Whether none could be started so far.
    pub fn lacks_committer(&self) -> bool {
        self.lacking.is_some()
    }

    /// One was started.
    pub fn is_started(&mut self, committer: Committer) {
        self.committer = Some(committer);
        self.lacking = None;
    }

    /// None could be started, for `why`.
    pub fn is_not_started(&mut self, now: u64, why: String) {
        let before = self.lacking.as_ref();
        let (since, tries) =
            before.map_or((now, 1), |before| (before.since, before.tries.saturating_add(1)));
        self.lacking = Some(Failing { since, tries, why, corrupt: false, hangs: false });
    }

    /// Hands the committer out, for the end.
    pub fn take_committer(&mut self) -> Option<Committer> {
        self.committer.take()
    }

    /// There may be something to commit.
    pub fn wake(&self) {
        if let Some(committer) = &self.committer {
            committer.wake();
        }
    }

    /// The journal that had to be made again, once.
    pub fn new_journal(&self) -> Option<OwnedFd> {
        self.committer.as_ref()?.new_journal()
    }

    /// Whether something was committed since that was asked last.
    pub fn has_committed(&mut self) -> bool {
        self.committer.as_mut().is_some_and(Committer::has_committed)
    }

    /// When the last commit ended.
    pub fn last(&self) -> Option<u64> {
        self.committer.as_ref()?.last()
    }

    /// A commit that has given no answer for `limit` nanoseconds.
    pub fn hanging(&self, now: u64, limit: u64) -> Option<Failing> {
        self.committer.as_ref()?.hanging(now, limit)
    }

    /// When to look next whether one hangs. What begins right after a look that finds nothing hangs
    /// at the next one, at the earliest.
    pub fn next_look(&self, now: u64, limit: u64) -> Option<u64> {
        let committer = self.committer.as_ref()?;
        Some(committer.next_look(now, limit).unwrap_or(now.saturating_add(limit)))
    }

    /// Whether commits reach the image, if one may take `limit` nanoseconds.
    pub fn commits(&self, now: u64, limit: u64) -> Commits {
        let failing = match (&self.committer, &self.lacking) {
            (Some(committer), _) => committer.hanging(now, limit).or_else(|| committer.failing()),
            // Without one, nothing reaches the image either.
            (None, Some(failing)) => Some(failing.clone()),
            (None, None) => return Commits::None,
        };
        failing.map_or(Commits::Fine, Commits::Failing)
    }

    /// Whether those who wait are to be told of that try, which is another than the last one.
    pub fn is_news(&self, failing: &Failing) -> bool {
        self.declared != Some((failing.since, failing.tries))
    }

    /// They are told of that one.
    pub fn declare(&mut self, failing: &Failing) {
        self.declared = Some((failing.since, failing.tries));
    }

    /// Commits reach the image.
    pub fn nothing_fails(&mut self) {
        self.declared = None;
    }

    /// A checkpoint may be asked for, by now `served` requests and each `pause` nanoseconds.
    /// `waits`: somebody waits for one. `by_requests`: it is called for if somebody has done
    /// something since the last time, too.
    pub fn turn(
        &mut self,
        now: u64,
        served: u64,
        waits: bool,
        pause: u64,
        by_requests: bool,
    ) -> Turn {
        if std::mem::replace(&mut self.again, waits) && !waits {
            // The one that was waited for has been made meanwhile: the next has its time.
            return Turn { next: now.saturating_add(pause), due: false, idle: None };
        }
        // One that could not be made now is asked for again while somebody waits.
        let pause = if waits { pause.min(SOON) } else { pause };
        let idle = std::mem::replace(&mut self.requests, served) == served;
        let due = waits || !idle && by_requests;
        Turn { next: now.saturating_add(pause), due, idle: Some(idle) }
    }

    /// Whether memory is to be given back that a long epoch took: when epochs have become short
    /// again, or nobody does anything. By now they have `held` bytes.
    pub fn wants_trim(&mut self, held: u64, idle: bool) -> bool {
        self.bloated |= held > WORTH;
        let wants = self.bloated && (idle || held <= WORTH);
        if wants {
            self.bloated = idle && held > WORTH;
        }
        wants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_try_is_declared_once() {
        let mut desk = CommitDesk::default();
        let failing = |since, tries| Failing {
            since,
            tries,
            why: String::new(),
            corrupt: true,
            hangs: false,
        };
        for (since, tries) in [(1, 1), (1, 2), (5, 1)] {
            assert!(desk.is_news(&failing(since, tries)));
            desk.declare(&failing(since, tries));
            // However often the daemon answers that it has heard.
            assert!(!desk.is_news(&failing(since, tries)));
            assert!(!desk.is_news(&Failing { why: "else".to_owned(), ..failing(since, tries) }));
        }
        desk.nothing_fails();
        assert!(desk.is_news(&failing(5, 1)));
    }

    #[test]
    fn a_committer_that_cannot_be_started_fails_since_the_first_try() {
        let mut desk = CommitDesk::default();
        assert_eq!(desk.commits(0, 1), Commits::None);
        desk.is_not_started(7, "first".to_owned());
        desk.is_not_started(9, "second".to_owned());
        let Commits::Failing(failing) = desk.commits(10, 1) else { panic!("it fails") };
        assert_eq!((failing.since, failing.tries, &*failing.why), (7, 2, "second"));
    }

    #[test]
    fn checkpoints_are_asked_for_by_time_if_something_was_done() {
        let pause = 10 * SECOND;
        let mut desk = CommitDesk::default();
        let turn = |due, idle| Turn { next: 5 + pause, due, idle: Some(idle) };
        assert_eq!(desk.turn(5, 1, false, pause, true), turn(true, false));
        assert_eq!(desk.turn(5, 1, false, pause, true), turn(false, true));
        assert_eq!(desk.turn(5, 2, false, pause, false), turn(false, false));
    }

    #[test]
    fn who_waits_for_a_checkpoint_has_it_asked_for_until_it_is_made() {
        let pause = 10 * SECOND;
        let mut desk = CommitDesk::default();
        for _ in 0..2 {
            let turn = desk.turn(5, 0, true, pause, false);
            assert_eq!(turn, Turn { next: 5 + SOON, due: true, idle: Some(true) });
        }
        // It has been made, and the next is asked for by time again, if something was done since.
        let turn = desk.turn(5, 3, false, pause, true);
        assert_eq!(turn, Turn { next: 5 + pause, due: false, idle: None });
        assert!(desk.turn(5, 3, false, pause, true).due);
    }

    #[test]
    fn memory_is_given_back_once_it_is_not_needed() {
        let mut desk = CommitDesk::default();
        assert!(!desk.wants_trim(WORTH, true));
        assert!(!desk.wants_trim(WORTH + 1, false), "it is in use");
        assert!(desk.wants_trim(WORTH, false));
        assert!(!desk.wants_trim(WORTH, false), "it has been");
        assert!(desk.wants_trim(WORTH + 1, true));
        assert!(desk.wants_trim(0, true), "what is idle may still hold more");
        assert!(!desk.wants_trim(0, true));
    }
}
