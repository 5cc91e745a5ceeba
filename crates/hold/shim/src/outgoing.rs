//! Writes to the FUSE device: the daemon's replies and notifications.

use crate::real;
use crate::start::Shim;
use belay_recorder::control::{Loss, flags, options};
use belay_recorder::{Slot, free_slot};
use belay_session::{Expected, Outgoing, Phase, describe_reply};
use belay_wire::rules::broken_header;
use belay_wire::{OutHeader, Rule, UNIQUE_RESEND, get_u64};
use libc::{c_int, iovec};
use std::borrow::Cow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zerocopy::FromBytes;

/// `unique` bit of requests that belay puts to the daemon by itself.
const INJECTED: u64 = 1 << 62;
/// Bytes of a reply's header (fuse_out_header).
const HEADER: usize = 16;

impl Shim {
    /// A message that the daemon writes to the device `fd`, as the kernel would see it.
    #[inline]
    pub(crate) fn write_vectored(&self, fd: c_int, iov: *const iovec, count: c_int) -> isize {
        // SAFETY: the daemon's arguments to writev(2): `count` iovecs whose buffers are readable
        // until it returns. An invalid count gives an empty slice.
        let parts = unsafe { std::slice::from_raw_parts(iov, usize::try_from(count).unwrap_or(0)) };
        // SAFETY: the daemon's own arguments, passed on unchanged.
        let pass = || unsafe { belay_sys::raw::syscall(libc::SYS_writev, fd, iov, count) as isize };
        // As libfuse does it: the header, and what it is about. Nothing is copied to look at it.
        match parts {
            [head] if head.iov_len == HEADER => {
                self.outgoing(bytes_of(head), HEADER, || Cow::Borrowed(&[]), pass)
            }
            [head, body] if head.iov_len == HEADER => {
                let total = HEADER + body.iov_len;
                self.outgoing(bytes_of(head), total, || Cow::Borrowed(bytes_of(body)), pass)
            }
            _ => {
                let mut head = whole(parts);
                let total = head.len();
                let body = head.split_off(HEADER.min(total));
                self.outgoing(&head, total, || Cow::Owned(body), pass)
            }
        }
    }

    /// Takes a message from the daemon: `head` is its header, `body` gives what is behind that,
    /// `pass` writes it to the device as it is.
    #[inline]
    pub(crate) fn outgoing<'a>(
        &self,
        head: &[u8],
        total: usize,
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> isize,
    ) -> isize {
        crate::dying::checkpoint();
        if self.is_init_reply(head) {
            return self.init_outgoing(&[head, &body()].concat(), pass);
        }
        if let Some(rule) = broken(head, total) {
            self.fault(rule, head, total, &body());
        }
        if self.options & options::ENDS_UNCONNECTED != 0 {
            self.end_unconnected();
        }
        let unique = get_u64(head, 8).unwrap_or(0);
        if unique & INJECTED == 0
            && unique != 0
            && let Some(errno) = self.effects_replied(unique & !UNIQUE_RESEND, failed(head))
        {
            let error = belay_wire::build::reply_error(unique, errno);
            let write = || if self.write(&error) == 0 { total as isize } else { -1 };
            return self.decided(&error, total, || Cow::Borrowed(&[]), write);
        }
        self.decided(head, total, body, pass)
    }

    /// The same, once it is known what the caller is to get.
    #[inline]
    fn decided<'a>(
        &self,
        head: &[u8],
        total: usize,
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> isize,
    ) -> isize {
        let unique = get_u64(head, 8).unwrap_or(0);
        let taken = self.direct.take(unique);
        if let Some(expected) = taken
            && !self.pending.load(Acquire)
            && self.replied.load(Relaxed)
        {
            return self.settle(&expected, head, total, body, pass);
        }
        if unique & INJECTED != 0 {
            self.epoch_answered();
            self.effects_decided(unique); // what the session makes of it comes after it
        }
        let mut session = self.session();
        let body = body();
        let outgoing = session.on_reply(head, || Cow::Borrowed(&body), taken.is_some());
        let slot = session.take_sending();
        let (kick, told) = (session.take_kick(), session.take_told());
        let settling = session.phase() == Phase::Settling;
        let full = session.is_full();
        self.epoch_logged(&session);
        self.pending.store(settling || !session.is_quiet(), Release);
        drop(session);
        if full {
            self.degraded();
        }
        if told {
            self.tell();
        }
        self.effects_decided(unique);
        let written = match outgoing {
            Outgoing::Pass => pass(),
            Outgoing::PassKept => {
                let written = pass();
                let errno = real::errno();
                self.delivered(slot, unique);
                real::set_errno(errno);
                written
            }
            Outgoing::Replace(message) => self.replaced(message.as_bytes(), slot, unique, total),
            Outgoing::ReplaceLong(message) => self.replaced(&message, slot, unique, total),
            Outgoing::Swallow => total as isize,
            Outgoing::Refuse(errno) => {
                real::set_errno(errno);
                -1
            }
            Outgoing::Fault(rule) => self.fault(rule, head, total, &body),
            Outgoing::Unrecordable => unrecordable(),
        };
        if !self.replied.load(Relaxed) && written >= 0 && unique != 0 {
            self.note_reply(unique);
        }
        if kick || self.waiting.is_used() {
            let errno = real::errno();
            if kick {
                self.wake(settling);
            }
            self.ring_for_more();
            real::set_errno(errno);
        }
        written
    }

    /// A reply that needs no session.
    #[inline]
    fn settle<'a>(
        &self,
        expected: &Expected,
        head: &[u8],
        total: usize,
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> isize,
    ) -> isize {
        let body = body();
        if let Some(rule) = expected.broken(head, &body) {
            self.fault(rule, head, total, &body);
        }
        if expected.is_recorded() {
            expected.replying(&*self.memory, &self.layout, head, &body);
        }
        self.effects_decided(get_u64(head, 8).unwrap_or(0));
        let written = pass();
        expected.delivered(&*self.memory, &self.layout);
        self.freed.store(true, Release);
        written
    }

    /// The daemon is about to end, as its connection has broken, and says so to who asked by an error, or by less than there
    /// is: it is ended before that goes out, and its successor is given the request again.
    #[cold]
    fn end_unconnected(&self) {
        if self.connection.is_gone() {
            eprintln!("belay: the daemon's connection has broken");
            // Past what notes who sends signals: it is no more the request's fault than what comes from outside.
            // SAFETY: a signal to this process, of which no handler runs.
            unsafe {
                belay_sys::raw::syscall(libc::SYS_kill, std::process::id(), libc::SIGKILL);
            }
        }
    }

    /// The daemon gives a reply that no sound daemon gives: it is ended here, with that on record, and its successor
    /// is given the request again. By `abort`, so that the report shows where in the daemon that was.
    #[cold]
    fn fault(&self, rule: Rule, head: &[u8], total: usize, body: &[u8]) -> ! {
        let header = OutHeader::read_from_prefix(head).map(|(header, _)| header);
        let reply = match &header {
            Ok(header) => describe_reply(header, total, body),
            Err(_) => format!("{total} bytes"),
        };
        let request = self.session().describe_in_hand(header.map_or(0, |header| header.unique));
        let line = |text: &str| text.replace(char::is_control, " ");
        // The request last, as that alone may be long.
        let text = format!("{rule}\n{}\n{}", line(&reply), line(&request));
        self.control().set_violation(self.generation, text.as_bytes());
        eprintln!("belay: the daemon's reply is not passed on: {rule}: {request}; reply {reply}");
        std::process::abort();
    }

    #[cold]
    fn init_outgoing(&self, message: &[u8], pass: impl Fn() -> isize) -> isize {
        if self.options & options::ENDS_UNCONNECTED != 0 {
            self.connection.look(); // it may break before the first reply
        }
        if !self.init_reply(message) {
            return message.len() as isize;
        }
        let written = pass();
        if written >= 0 {
            self.init_delivered();
        }
        written
    }

    /// The recorder is full: what happens from now on may not survive a crash, and that is said.
    #[cold]
    fn degraded(&self) {
        if !self.control().has(flags::DEGRADED) {
            self.control().raise(flags::DEGRADED);
            self.control().lose(
                Loss::Record,
                "not everything is on record: a further crash cannot be hidden exactly",
            );
            self.tell();
        }
    }

    fn replaced(&self, message: &[u8], slot: Option<Slot>, unique: u64, total: usize) -> isize {
        let errno = self.write(message);
        if errno == libc::ENOENT {
            let mut session = self.session();
            session.on_refused(unique);
            let kick = session.take_kick();
            self.pending.store(!session.is_quiet(), Release);
            drop(session);
            if kick {
                self.wake(false); // there is something to forget
            }
        } else {
            self.delivered(slot, unique);
        }
        if errno == 0 {
            return total as isize;
        }
        real::set_errno(errno);
        -1
    }

    /// The kernel has a reply: its slot is free. That needs no lock; the session hears of it when
    /// the next request comes.
    #[inline]
    fn delivered(&self, slot: Option<Slot>, unique: u64) {
        match slot {
            // Where requests are copied, readers wait for slots.
            Some(slot) if !self.copies.load(Relaxed) => {
                free_slot(&*self.memory, &self.layout, slot);
                self.freed.store(true, Release);
            }
            _ => self.session().on_delivered(unique),
        }
    }
}

/// The daemon has carried out more at once than the op-log has room for. It is ended before it answers: nobody has seen
/// anything of what is not on record.
#[cold]
fn unrecordable() -> ! {
    eprintln!(
        "belay: the op-log has no room for what the daemon has done; it is ended, and does that again behind a checkpoint"
    );
    std::process::abort();
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

/// What an iovec of the daemon's writev(2) points to, until that returns.
fn bytes_of(part: &iovec) -> &[u8] {
    if part.iov_len == 0 {
        return &[];
    }
    // SAFETY: the iovec is readable for iov_len bytes until the daemon's writev(2) returns, and
    // lives at most as long as that call.
    unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) }
}

/// Copies all that the iovecs hold.
fn whole(parts: &[iovec]) -> Vec<u8> {
    let mut message = Vec::with_capacity(parts.iter().map(|part| part.iov_len).sum());
    for part in parts {
        message.extend_from_slice(bytes_of(part));
    }
    message
}
