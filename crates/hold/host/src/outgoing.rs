//! What becomes of a message that the daemon writes to the device: a reply, or a notification.

use crate::environment::{Environment, Fault};
use crate::host::Host;
use belay_memory::Memory;
use belay_recorder::control::{Flags, Loss};
use belay_recorder::{Slot, free_slot};
use belay_session::{Expected, Outgoing, Phase};
use belay_wire::errno::ENOENT;
use belay_wire::rules::broken_header;
use belay_wire::{OutHeader, Rule, Unique, get_u64};
use std::borrow::Cow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zerocopy::FromBytes;

/// How many bytes of a message the daemon is told that it has written, or the errno.
type Written = Result<usize, i32>;

impl<M: Memory> Host<M> {
    /// Takes a message from the daemon: `head` is its header, `total` its length, `body` gives what
    /// is behind the header, `pass` writes it to the device as it is.
    ///
    /// # Errors
    /// The errno that the daemon's write fails with.
    #[inline]
    pub fn outgoing<'a>(
        &self,
        env: &impl Environment<M>,
        (head, total): (&[u8], usize),
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> Written,
    ) -> Written {
        env.answering();
        if self.is_init_reply(head) {
            return self.init_outgoing(env, &[head, &body()].concat(), pass);
        }
        if let Some(rule) = broken(head, total) {
            env.fault(&Fault { rule, head, total, body: &body() });
        }
        let unique = get_u64(head, 8).unwrap_or(0);
        if !Unique::new(unique).is_own()
            && unique != 0
            && let Some(errno) = env.replied(Unique::unmarked(unique), failed(head))
        {
            let error = belay_wire::build::reply_error(unique, errno);
            let write = || result(env.write(&error), total);
            return self.decided(env, (&error, total), || Cow::Borrowed(&[]), write);
        }
        self.decided(env, (head, total), body, pass)
    }

    /// The same, once it is known what the caller is to get.
    #[inline]
    fn decided<'a>(
        &self,
        env: &impl Environment<M>,
        (head, total): (&[u8], usize),
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> Written,
    ) -> Written {
        let unique = get_u64(head, 8).unwrap_or(0);
        let taken = self.direct.take(unique);
        if let Some(expected) = taken
            && expected.is_settled_by(head)
            && !self.pending.load(Acquire)
            && self.replied.load(Relaxed)
        {
            return self.settle(env, &expected, (head, total), body, pass);
        }
        if Unique::new(unique).is_own() {
            if env.keeps_epochs() {
                env.answered();
            }
            env.decided(unique); // what the session makes of it comes after it
        }
        let mut session = self.session();
        let body = body();
        let outgoing = session.on_reply(head, || Cow::Borrowed(&body), taken.is_some());
        let slot = session.take_sending();
        let (kick, told) = (session.take_kick(), session.take_told());
        let settling = session.phase() == Phase::Settling;
        let full = session.is_full();
        if env.keeps_epochs() {
            env.logged(&session);
        }
        self.note_work(&session, true);
        drop(session);
        if full {
            self.degraded(env);
        }
        if told {
            env.tell();
        }
        env.decided(unique);
        let written = match outgoing {
            Outgoing::Pass => pass(),
            Outgoing::PassKept => {
                let written = pass();
                self.delivered(slot, unique);
                written
            }
            Outgoing::Replace(message) => {
                self.replaced(env, message.as_bytes(), (slot, unique), total)
            }
            Outgoing::ReplaceLong(message) => self.replaced(env, &message, (slot, unique), total),
            Outgoing::Swallow => Ok(total),
            Outgoing::Refuse(errno) => Err(errno),
            Outgoing::Fault(rule) => env.fault(&Fault { rule, head, total, body: &body }),
            Outgoing::Unrecordable => env.unrecordable(),
        };
        if !self.replied.load(Relaxed) && written.is_ok() && unique != 0 {
            self.note_reply(env, unique);
        }
        if kick {
            self.wake(env, settling);
        }
        if kick || env.is_polled() {
            self.ring_for_more(env);
        }
        written
    }

    /// A reply that needs no session.
    #[inline]
    fn settle<'a>(
        &self,
        env: &impl Environment<M>,
        expected: &Expected,
        (head, total): (&[u8], usize),
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> Written,
    ) -> Written {
        let body = body();
        if let Some(rule) = expected.broken(head, &body) {
            env.fault(&Fault { rule, head, total, body: &body });
        }
        if expected.is_recorded() {
            expected.replying(&self.memory, &self.attachment.layout, head, &body);
        }
        env.decided(get_u64(head, 8).unwrap_or(0));
        let written = pass();
        expected.delivered(&self.memory, &self.attachment.layout);
        self.freed.store(true, Release);
        written
    }

    #[cold]
    fn init_outgoing(
        &self,
        env: &impl Environment<M>,
        message: &[u8],
        pass: impl Fn() -> Written,
    ) -> Written {
        if !self.init_reply(env, message) {
            return Ok(message.len());
        }
        let written = pass();
        if written.is_ok() {
            self.init_delivered(env);
        }
        written
    }

    /// The recorder is full: what happens from now on may not survive a crash, and that is said.
    #[cold]
    fn degraded(&self, env: &impl Environment<M>) {
        if !self.control().has(Flags::DEGRADED) {
            self.control().raise(Flags::DEGRADED);
            self.control().lose(
                Loss::Record,
                "not everything is on record: a further crash cannot be hidden exactly",
            );
            env.tell();
        }
    }

    fn replaced(
        &self,
        env: &impl Environment<M>,
        message: &[u8],
        (slot, unique): (Option<Slot>, u64),
        total: usize,
    ) -> Written {
        let errno = env.write(message);
        if errno == ENOENT {
            let mut session = self.session();
            session.on_refused(unique);
            let kick = session.take_kick();
            self.note_work(&session, false);
            drop(session);
            if kick {
                self.wake(env, false); // there is something to forget
            }
        } else {
            self.delivered(slot, unique);
        }
        result(errno, total)
    }

    /// The kernel has a reply: its slot is free. That needs no lock; the session hears of it when
    /// the next request comes.
    #[inline]
    fn delivered(&self, slot: Option<Slot>, unique: u64) {
        match slot {
            // Where requests are copied, readers wait for slots.
            Some(slot) if !self.copies() => {
                free_slot(&self.memory, &self.attachment.layout, slot);
                self.freed.store(true, Release);
            }
            _ => self.session().on_delivered(unique),
        }
    }
}

fn result(errno: i32, total: usize) -> Written {
    if errno == 0 { Ok(total) } else { Err(errno) }
}

/// Which rule of the protocol a message breaks by its header alone.
#[inline]
fn broken(head: &[u8], total: usize) -> Option<Rule> {
    match OutHeader::read_from_prefix(head) {
        Ok((header, _)) => broken_header(&header, total),
        Err(_) => Some(Rule::Header),
    }
}

/// Whether a message says that a request has failed.
#[inline]
fn failed(head: &[u8]) -> bool {
    head.get(4..8) != Some(&[0; 4])
}
