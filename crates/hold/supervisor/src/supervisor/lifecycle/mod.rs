//! What is next in the life of a mount: starts, recoveries, pauses between them, and the steps
//! towards an end.
//!
//! [`Lifecycle::on`] takes what has happened and gives what is to be done. It has no clock, no
//! process and no mount: what it must know comes with the event, and what outlives a supervisor is
//! in the [`Book`]. What is done is the supervisor's (`life.rs`). That a mount cannot go on at all
//! is found in many places, each of which says so by [`Event::Ends`].
//!
//! | module | decides |
//! | --- | --- |
//! | [`starts`] | when the next start is made, and when no further one is |
//! | [`stop`] | the steps towards an end that was asked for |
//!
//! Invariant: an end is the last thing: nothing is commanded after [`Event::Ends`].

mod starts;
mod stop;

pub(super) use starts::{Death, Failure, Worthless, count_worth};
pub(super) use stop::StopInput;

use super::parts::deadlines::Due;
use crate::clock::SECOND;
use crate::detection::Detection;
use crate::ledger::Book;
use crate::process::Exit;
use crate::verdict::Next;

/// How long after its end a recovery is concluded (report, statistics), in nanoseconds: on a busy
/// machine that would compete with the applications, which have just got their answers.
const AFTERWARDS: u64 = SECOND / 200;

/// Where the life of the mount is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A daemon starts, and no crash is to be recovered from.
    Starting,
    /// A daemon starts in the place of one that died, or is about to. `open_ns`: when all was
    /// settled that had been in flight; its conclusion is due soon.
    Recovering {
        /// That time.
        open_ns: Option<u64>,
    },
    /// The daemon serves: nothing of its start is left.
    Serving,
    /// No process is there. The next start is due then.
    Waiting {
        /// That time.
        until: u64,
    },
    /// It is over.
    Ended {
        /// Belay's exit code.
        code: i32,
        /// The daemon served until then.
        served: bool,
    },
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// This supervisor begins. Another one may have been here before.
    Begins,
    /// A generation is being started, or was found to be.
    Starts,
    /// How far the daemon has come.
    Seen {
        now: u64,
        /// It serves, or settles what was in flight.
        ready: bool,
        /// When all was settled; 0 if it is not yet.
        open_ns: u64,
    },
    /// It is time to conclude a recovery that is over, or something else begins.
    Concludes,
    /// The daemon has crashed, and the lease is the next generation's.
    Died,
    /// What the dead one may still do is seen to: the next may start.
    Fenced(Death),
    /// No process could be started. `passes`: what is lacking may come.
    NotStarted { passes: bool, why: String },
    /// A start has failed.
    StartFailed(Failure),
    /// The time of the next start has come.
    StartIsDue,
    /// Somebody wants the next start now.
    Hurried { now: u64 },
    /// The mount is not there any more, and no daemon is there that could learn that.
    /// `keeps_epochs`: what was acknowledged has to be done again first.
    MountGone { keeps_epochs: bool },
    /// Somebody wants the end.
    StopAsked { now: u64 },
    /// The time of the next step towards the end has come.
    StopIsDue(StopInput),
    /// Something has changed of what that step depends on.
    StopPursued(StopInput),
    /// Whether the daemon, whose time is over, still writes what nobody else has.
    Stores { now: u64, still: bool },
    /// The daemon knows that it is to end.
    DaemonTold,
    /// The mount was taken off because nobody uses it.
    Unmounted { now: u64 },
    /// Another daemon is started though the mount has gone: it gets as much time as the one before.
    StartsOnceMore { now: u64 },
    /// It is over.
    Ends { code: i32 },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Act at that time without being told.
    Set(Due, u64),
    /// Do not.
    Cancel(Due),
    /// Start the generation that the book names.
    Launch,
    /// Note that the program that was started does not serve, if it is a new one.
    RejectProgram,
    /// Count a start that has failed, as [`Event::StartFailed`]. `asks`: another program may be
    /// tried at once.
    FailStart { next: Next, detection: Detection, asks: bool },
    /// Say that what is to be held cannot be started at all.
    Unstartable { why: String },
    /// The daemon serves, and nothing was to be recovered from.
    Serve,
    /// Hold the successor's connections, which it may have made anew.
    HoldConnections,
    /// The recovery was over at that time.
    Conclude { open_ns: u64 },
    /// End the mount as if somebody had asked for it.
    Stop,
    /// Tell whether the daemon still writes, as [`Event::Stores`].
    LookWhetherItStores,
    /// It is given more time. `first`: it has not been before.
    LetStore { first: bool },
    /// Have the mount taken off and the daemon told.
    TellDaemon,
    /// Take the mount off, and kill the daemon.
    Force,
    /// The daemon was killed, and does not end: leave it.
    LeaveBehind,
    /// Give the mount up. It can wait until the dead daemon was told of.
    GiveUp(Worthless),
    /// End with that code.
    Finish { code: i32 },
}

/// The life of a mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifecycle {
    phase: Phase,
    limits: Limits,
}

/// What the user chose of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Lives that may end without having served anybody; 0 for any number (`--max-crashes`).
    pub max_crashes: u32,
    /// For how long starts that fail are made again, in nanoseconds (`--retry-for`).
    pub retry_for: u64,
}

impl Lifecycle {
    /// One that begins.
    pub fn new(limits: Limits) -> Self {
        Self { phase: Phase::Starting, limits }
    }

    /// Whether the daemon serves, and nothing of its start is left; at the end, whether that was
    /// so.
    pub fn serves(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Ended { served: true, .. })
    }

    /// Whether a process is there, or is about to be, that does not serve yet.
    pub fn starts(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Recovering { .. })
    }

    /// When the next start is due, where no process is there.
    pub fn next_start(&self) -> Option<u64> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            _ => None,
        }
    }

    /// Whether that start is waited for, as those before have failed.
    pub fn waits(&self, book: &Book) -> bool {
        self.next_start().is_some() && book.tries.waiting.as_ref().is_some_and(|row| row.lasts())
    }

    /// The exit code, if it is over.
    pub fn ended(&self) -> Option<i32> {
        match self.phase {
            Phase::Ended { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Decides.
    pub fn on(&mut self, book: &mut Book, event: Event) -> Vec<Command> {
        if let Event::Ends { code } = event {
            self.phase = Phase::Ended { code, served: self.serves() };
            return Vec::new();
        }
        if self.ended().is_some() {
            return Vec::new();
        }
        match event {
            Event::Begins => {
                self.begin(book);
                vec![stop::schedule(book)]
            }
            Event::Starts => {
                self.begin(book);
                vec![Command::Cancel(Due::Launch), Command::Cancel(Due::Conclusion)]
            }
            Event::Seen { now, ready, open_ns } => self.seen(now, ready, open_ns),
            Event::Concludes => self.concludes(),
            Event::Died => match book.stop {
                Some(stop) if stop.at_once => vec![Command::Finish { code: 0 }],
                _ => {
                    self.phase = Phase::Recovering { open_ns: None };
                    Vec::new()
                }
            },
            Event::Fenced(death) => self.fenced(book, death),
            Event::NotStarted { passes, why } => starts::not_started(book, passes, why),
            Event::StartFailed(failure) => self.start_failed(book, failure),
            Event::StartIsDue => match self.phase {
                Phase::Waiting { .. } => vec![Command::Launch],
                _ => Vec::new(),
            },
            Event::Hurried { now } if self.waits(book) => self.wait_until(now),
            Event::Hurried { .. } => Vec::new(),
            Event::MountGone { keeps_epochs } => self.mount_gone(book, keeps_epochs),
            Event::StopAsked { now } => stop::asked(book, now),
            Event::StopIsDue(input) => self.stop_is_due(book, input),
            Event::StopPursued(input) => self.pursue_stop(book, input),
            Event::Stores { now, still } => stop::stores(book, now, still),
            Event::DaemonTold => stop::told(book),
            Event::Unmounted { now } => stop::unmounted(book, now),
            Event::StartsOnceMore { now } => stop::once_more(book, now),
            Event::Ends { .. } => Vec::new(),
        }
    }

    /// A process is there, or about to be, that does not serve yet.
    fn begin(&mut self, book: &Book) {
        self.phase = match book.crash {
            Some(_) => Phase::Recovering { open_ns: None },
            None => Phase::Starting,
        };
    }

    fn wait_until(&mut self, until: u64) -> Vec<Command> {
        self.phase = Phase::Waiting { until };
        vec![Command::Set(Due::Launch, until)]
    }

    fn seen(&mut self, now: u64, ready: bool, open_ns: u64) -> Vec<Command> {
        match self.phase {
            Phase::Starting if ready || open_ns != 0 => {
                self.phase = Phase::Serving;
                vec![Command::Serve]
            }
            Phase::Recovering { open_ns: None } if open_ns != 0 => {
                self.phase = Phase::Recovering { open_ns: Some(open_ns) };
                let at = now.saturating_add(AFTERWARDS);
                // This is not put off: the successor may die at once.
                vec![Command::Set(Due::Conclusion, at), Command::HoldConnections]
            }
            _ => Vec::new(),
        }
    }

    fn concludes(&mut self) -> Vec<Command> {
        match self.phase {
            Phase::Recovering { open_ns: Some(open_ns) } => {
                self.phase = Phase::Serving;
                vec![Command::Cancel(Due::Conclusion), Command::Conclude { open_ns }]
            }
            _ => Vec::new(),
        }
    }

    /// Whoever waits for a start need not wait for a mount that has gone; and what starts has not
    /// come so far as to learn that, and may not for long.
    fn mount_gone(&mut self, book: &Book, keeps_epochs: bool) -> Vec<Command> {
        if self.waits(book) {
            let code = book.last_exit.map_or(0, Exit::shell_code);
            return vec![Command::Cancel(Due::Launch), Command::Finish { code }];
        }
        let starts = self.starts() && book.generation > 0;
        match starts && book.stop.is_none() && !keeps_epochs {
            true => vec![Command::Stop],
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
