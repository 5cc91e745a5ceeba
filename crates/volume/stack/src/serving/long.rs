//! Requests that take one checkpoint after another: a hole punched into a file of terabytes. A
//! thread of their own does a part of each in turn. However many there are, they hold up one
//! another, and nobody else.

use super::{Serving, Worker, lock};
use belay_posix::dispatch::Outcome;
use belay_wire::abi::InterruptIn;
use belay_wire::errno::EINTR;
use belay_wire::{Request, Unique, build};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// What takes more parts than this is long.
pub(super) const PARTS: u32 = 4;

/// Interrupts that are remembered: who is interrupted may not be long yet.
const MOST_INTERRUPTED: usize = 1024;

/// What came of a message.
pub(super) enum Handled {
    /// This, or it waits, and lacks nothing.
    Done(Option<Outcome>),
    /// Some parts of it are done, and there are more.
    Long,
}

/// A request that is long.
pub(super) struct Long {
    pub(super) message: Vec<u8>,
    pub(super) unique: u64,
}

/// Whose callers have been signalled.
#[derive(Debug, Default)]
pub(super) struct Interrupted(VecDeque<u64>);

impl Interrupted {
    /// An INTERRUPT says so.
    pub(super) fn note(&mut self, request: &Request<'_>) {
        let Some(body) = request.body_as::<InterruptIn>() else { return };
        if self.0.len() == MOST_INTERRUPTED {
            self.0.pop_front();
        }
        self.0.push_back(Unique::unmarked(body.unique));
    }

    fn has(&self, unique: u64) -> bool {
        self.0.contains(&Unique::unmarked(unique))
    }
}

/// Does those that come, for as long as any can come.
pub(super) fn serve(serving: &Arc<Serving>, come: &Receiver<Long>) {
    let mut worker = Worker::new(serving);
    let mut waiting: VecDeque<Long> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            let Ok(first) = come.recv() else { return };
            waiting.push_back(first);
        }
        waiting.extend(come.try_iter());
        let Some(one) = waiting.pop_front() else { continue };
        let reply = if lock(&serving.interrupted).has(one.unique) {
            // What is done of it stays done, as fallocate(2) says of this error.
            lock(&serving.state).module.give_up(one.unique);
            Some(build::reply_error(one.unique, EINTR))
        } else {
            match worker.handle(&one.message, one.unique, 1) {
                Handled::Long => {
                    waiting.push_back(one);
                    continue;
                }
                Handled::Done(outcome) => {
                    worker.reply_of(one.unique, outcome.unwrap_or(Outcome::Nothing))
                }
            }
        };
        if let Some(reply) = reply
            && let Err(why) = serving.reply(&reply)
        {
            let _ = serving.over.send(Err(why));
            return;
        }
    }
}
