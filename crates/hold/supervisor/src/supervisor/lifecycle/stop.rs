//! The steps towards an end that was asked for: the daemon is told, has its time, is killed, and is
//! left behind if it does not end.

use super::super::parts::deadlines::Due;
use super::{Command, Lifecycle};
use crate::clock::SECOND;
use crate::ledger::{Book, Stop};
use crate::signals::SAME_WISH;

/// How long a daemon may take to unmount by itself.
const PATIENCE: u64 = 10 * SECOND;
/// How long a daemon that was killed as belay is to end may take to be gone.
const KILLED: u64 = 10 * SECOND;

/// What the next step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::supervisor) struct StopInput {
    pub now: u64,
    /// A process of the daemon is there.
    pub process: bool,
    /// Nothing is to be done before the end.
    pub may_stop: bool,
    /// The daemon finds out by itself, when it is done.
    pub finds_out: bool,
    /// The daemon waits in an exec: it hears of nothing, and has lost what it could have written.
    pub execs: bool,
}

/// A wish to stop that has just come. `told`: the daemon knows of it.
fn wish(since_ns: u64, told: bool) -> Stop {
    let until_ns = since_ns.saturating_add(PATIENCE);
    Stop { since_ns, until_ns, told, at_once: false, repeated: false, killed_ns: None }
}

/// Notes the wish, or how far it has come; with the time of the next step.
fn set(book: &mut Book, stop: Stop) -> Command {
    book.stop = Some(stop);
    schedule(book)
}

/// The time of the next step.
pub(super) fn schedule(book: &Book) -> Command {
    let at = book.stop.and_then(|stop| match stop.at_once {
        false => Some(stop.until_ns),
        // Once all patience is lost, there is nothing more to do but to wait for the process, and
        // that not for ever.
        true => stop.killed_ns.map(|at| at.saturating_add(KILLED)),
    });
    at.map_or(Command::Cancel(Due::StopStep), |at| Command::Set(Due::StopStep, at))
}

/// Somebody wants the end; a second wish ends all patience.
pub(super) fn asked(book: &mut Book, now: u64) -> Vec<Command> {
    let stop = match book.stop {
        Some(stop) if now.saturating_sub(stop.since_ns) > SAME_WISH => {
            Stop { at_once: true, repeated: true, ..stop }
        }
        Some(stop) => stop,
        None => wish(now, false),
    };
    vec![set(book, stop)]
}

/// The mount was taken off: the daemon hears of it by itself, and gets the time that it gets when
/// belay is asked to stop.
pub(super) fn unmounted(book: &mut Book, now: u64) -> Vec<Command> {
    match book.stop {
        Some(_) => Vec::new(),
        None => vec![set(book, wish(now, true))],
    }
}

pub(super) fn once_more(book: &mut Book, now: u64) -> Vec<Command> {
    match book.stop {
        Some(_) => vec![set(book, wish(now, false))],
        None => Vec::new(),
    }
}

pub(super) fn told(book: &mut Book) -> Vec<Command> {
    match book.stop {
        Some(stop) => vec![set(book, Stop { told: true, ..stop })],
        None => Vec::new(),
    }
}

/// The daemon has had its time. It gets more while it writes what nobody else has.
pub(super) fn stores(book: &mut Book, now: u64, still: bool) -> Vec<Command> {
    match book.stop {
        Some(stop) if still => {
            let first = stop.until_ns.saturating_sub(stop.since_ns) <= PATIENCE;
            let until_ns = now.saturating_add(PATIENCE);
            vec![set(book, Stop { until_ns, ..stop }), Command::LetStore { first }]
        }
        Some(stop) => force(book, stop, now),
        None => Vec::new(),
    }
}

/// All patience is over.
fn force(book: &mut Book, stop: Stop, now: u64) -> Vec<Command> {
    let killed = stop.killed_ns.unwrap_or(now);
    let next = set(book, Stop { at_once: true, killed_ns: Some(killed), ..stop });
    let step = match now.saturating_sub(killed) < KILLED {
        true => Command::Force,
        false => Command::LeaveBehind,
    };
    vec![next, step]
}

impl Lifecycle {
    pub(super) fn stop_is_due(&mut self, book: &mut Book, input: StopInput) -> Vec<Command> {
        // Where there is no process to wait for, the next start brings one.
        if !input.process && book.stop.is_some_and(|stop| stop.at_once) {
            return vec![Command::Set(Due::StopStep, input.now.saturating_add(SECOND))];
        }
        self.pursue_stop(book, input)
    }

    pub(super) fn pursue_stop(&mut self, book: &mut Book, input: StopInput) -> Vec<Command> {
        let Some(stop) = book.stop else { return Vec::new() };
        if stop.at_once || input.execs {
            return force(book, stop, input.now);
        }
        if input.now >= stop.until_ns {
            return match stop.repeated {
                true => force(book, stop, input.now),
                false => vec![Command::LookWhetherItStores],
            };
        }
        if self.waits(book) {
            // Nothing is there that could end by itself, and none that may never come is waited
            // for.
            self.begin(book);
            return vec![Command::Cancel(Due::Launch), Command::Force];
        }
        match stop.told || !input.may_stop || !input.process || input.finds_out {
            true => Vec::new(),
            false => vec![Command::TellDaemon],
        }
    }
}
