//! When the next start is made, and when no further one is.
//!
//! Starts that fail and are made again: what the daemon needs is away (its server, its program, a
//! process to be had), and may come back. Invariant: such a start counts for no other limit than
//! `--retry-for`, and only a successor that was not killed from outside is kept waiting: the first
//! start after the death of a daemon that served is made at once.

use super::{Command, Lifecycle};
use crate::clock::SECOND;
use crate::detection::Detection;
use crate::ledger::{Book, Waiting};
use crate::verdict::{Next, Worth};
use belay_recorder::Blame;

/// Consecutive lives in which nobody asked for anything, for each crash that is allowed: a daemon
/// that dies by itself right after its start must not be started forever.
const IDLE_FACTOR: u32 = 20;
/// How long somebody else may go on killing daemons before they have served anybody.
const OUTSIDE: u64 = 600 * SECOND;
/// Lives in a row without a served request that are followed by another one at once.
const AT_ONCE: u32 = 3;
/// Pauses after starts that have failed, in seconds; the last one from then on.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 16, 30];
/// The longest pause.
const LONGEST: u64 = 30 * SECOND;
/// The longest pause where the machine itself lacks something: to look whether that is over costs
/// little.
const SOON: u64 = SECOND;
/// A daemon that came to serve, and has trouble again so soon without having served anybody, still
/// has the same.
const SAME: u64 = 60 * SECOND;

/// What the death of a daemon means for the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::supervisor) struct Death {
    pub now: u64,
    /// What its end says of that.
    pub next: Next,
    pub detection: Detection,
    /// It came to nothing by its own doing.
    pub is_its_own: bool,
    /// No further one would come farther.
    pub worthless: Option<Worthless>,
}

/// Why no further start is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::supervisor) enum Worthless {
    /// What is on record is damaged.
    Corrupt,
    /// What is on record takes too much memory, as said here.
    TooLarge(String),
    /// Too many have come to nothing.
    CrashLoop,
    /// Starts have failed for too long.
    Impatience,
}

/// A start that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::supervisor) struct Failure {
    pub now: u64,
    /// What its end says of the next.
    pub next: Next,
    pub detection: Detection,
    /// Why, for people.
    pub why: String,
    /// Another program is there to be tried at once.
    pub other: bool,
}

/// How long to wait after the `tries`-th failed start in a row.
fn pause(next: Next, detection: &Detection, tries: u32) -> u64 {
    let doubled = |most: u64| ((SECOND / 100) << tries.min(20)).min(most);
    match (next, detection) {
        (_, Detection::NotStarted { .. }) => doubled(SOON),
        // Killed by somebody: a few of these say nothing.
        (Next::Anew | Next::Again, _) if tries < 3 => 0,
        (Next::Anew | Next::Again, _) => doubled(LONGEST),
        (Next::Later, _) => {
            let at = usize::try_from(tries.saturating_sub(1)).unwrap_or(usize::MAX);
            PAUSES.get(at).map_or(LONGEST, |seconds| seconds * SECOND)
        }
    }
}

impl Lifecycle {
    /// When patience with starts that fail ends.
    pub fn patient_until(&self, waiting: &Waiting) -> u64 {
        waiting.since_ns.saturating_add(self.limits.retry_for)
    }

    /// Whether the daemon has died too often without having served anybody.
    pub fn is_crash_loop(&self, book: &Book, now: u64) -> bool {
        let limit = self.limits.max_crashes;
        let outside = book.tries.outside_since.map_or(0, |since| now.saturating_sub(since));
        limit > 0
            && (outside > OUTSIDE
                || book.tries.unproductive >= limit
                || book.tries.idle >= limit.saturating_mul(IDLE_FACTOR))
    }

    pub(super) fn fenced(&mut self, book: &Book, death: Death) -> Vec<Command> {
        if let Some(worthless) = death.worthless {
            return vec![Command::GiveUp(worthless)];
        }
        match death.next {
            Next::Anew => {
                // A new program that comes so far as to serve, and no further, does not serve
                // either.
                let mut commands = Vec::new();
                if death.is_its_own {
                    commands.push(Command::RejectProgram);
                }
                if book.tries.unproductive < AT_ONCE {
                    commands.push(Command::Launch);
                } else {
                    let steps = book.tries.unproductive.min(6);
                    let until = death.now.saturating_add((SECOND / 1000) * (10 << steps));
                    commands.extend(self.wait_until(until));
                }
                commands
            }
            next => {
                let detection = death.detection;
                vec![Command::FailStart { next, detection, asks: next == Next::Later }]
            }
        }
    }

    /// Counts a start that has failed, and sets the time of the next one, unless patience is over.
    pub(super) fn start_failed(&mut self, book: &mut Book, failure: Failure) -> Vec<Command> {
        let Failure { now, next, detection, why, other } = failure;
        self.begin(book);
        if next == Next::Later {
            book.tally.not_started();
        }
        let same =
            |waiting: &Waiting| waiting.over_ns == 0 || now.saturating_sub(waiting.over_ns) < SAME;
        let mut waiting = book
            .tries
            .waiting
            .take()
            .filter(same)
            .unwrap_or_else(|| Waiting { since_ns: now, ..Waiting::default() });
        waiting.tries = waiting.tries.saturating_add(1);
        waiting.over_ns = 0;
        waiting.why = why;
        let until = self.patient_until(&waiting);
        let pause = if other { 0 } else { pause(next, &detection, waiting.tries) };
        // One last time when patience ends.
        let at = now.saturating_add(pause).min(until);
        waiting.next_ns = if pause == 0 { 0 } else { at };
        book.tries.waiting = Some(waiting);
        if now >= until && !other {
            return vec![Command::GiveUp(Worthless::Impatience)];
        }
        match pause {
            0 => vec![Command::Launch],
            _ => self.wait_until(at),
        }
    }
}

/// No process could be started, for `why`.
pub(super) fn not_started(book: &mut Book, passes: bool, why: String) -> Vec<Command> {
    if book.generation == 0 && !passes {
        return vec![Command::Unstartable { why }, Command::Finish { code: 1 }];
    }
    let detection = Detection::NotStarted { why };
    if let Some(crash) = &mut book.crash {
        crash.detection = detection.clone();
    }
    vec![Command::FailStart { next: Next::Later, detection, asks: true }]
}

/// Counts what a life was worth. `tried`: its death counts against a request, and that has an end
/// of its own.
pub(in crate::supervisor) fn count_worth(
    book: &mut Book,
    now: u64,
    worth: Worth,
    tried: bool,
    blame: Blame,
    detection: &Detection,
) {
    match detection {
        Detection::Requested { .. } => book.tally.planned(),
        Detection::Restart => book.tally.restarted(),
        // The daemon is not to blame for these.
        Detection::Takeover | Detection::Checkpoint => {}
        _ => match worth {
            Worth::Served => {
                (book.tries.unproductive, book.tries.idle) = (0, 0);
                book.tries.waiting = None;
            }
            Worth::Idle => book.tries.idle += 1,
            Worth::SetAside => {
                book.tries.unproductive = 0;
                book.tries.idle += 1;
            }
            // The daemon had no time to serve, and did nothing wrong.
            Worth::Nothing if blame == Blame::Outside => {
                book.tries.outside_since.get_or_insert(now);
                return;
            }
            Worth::Nothing if tried => {}
            Worth::Nothing => book.tries.unproductive += 1,
        },
    }
    book.tries.outside_since = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let seconds = |next, detection: &Detection, tries| pause(next, detection, tries) / SECOND;
        let death = &Detection::Death;
        let later: Vec<u64> = (1..9).map(|tries| seconds(Next::Later, death, tries)).collect();
        assert_eq!(later, [1, 2, 4, 8, 16, 30, 30, 30]);
        // A kill in a start costs nothing at first.
        assert_eq!((pause(Next::Again, death, 1), pause(Next::Again, death, 2)), (0, 0));
        assert!(pause(Next::Again, death, 3) > 0);
        assert_eq!(seconds(Next::Again, death, u32::MAX), 30);
        let lacks = &Detection::NotStarted { why: String::new() };
        assert!(pause(Next::Later, lacks, 1) < SECOND / 10);
        assert_eq!(seconds(Next::Later, lacks, 100), 1);
    }

    #[test]
    fn lives_count_for_what_they_were_worth() {
        let count = |before: (u32, u32), worth, tried, blame, detection: &Detection| {
            let mut book = Book::default();
            (book.tries.unproductive, book.tries.idle) = before;
            count_worth(&mut book, 7, worth, tried, blame, detection);
            (book.tries.unproductive, book.tries.idle, book.tries.outside_since)
        };
        let death = &Detection::Death;
        for (worth, tried, blame, detection, expected) in [
            (Worth::Served, false, Blame::Own, death, (0, 0, None)),
            (Worth::Idle, false, Blame::Own, death, (2, 4, None)),
            (Worth::SetAside, false, Blame::Own, death, (0, 4, None)),
            (Worth::Nothing, false, Blame::Own, death, (3, 3, None)),
            (Worth::Nothing, true, Blame::Own, death, (2, 3, None)),
            (Worth::Nothing, false, Blame::Outside, death, (2, 3, Some(7))),
            (Worth::Nothing, false, Blame::Own, &Detection::Restart, (2, 3, None)),
            (Worth::Nothing, false, Blame::Own, &Detection::Takeover, (2, 3, None)),
        ] {
            assert_eq!(count((2, 3), worth, tried, blame, detection), expected, "{worth:?}");
        }
    }
}
