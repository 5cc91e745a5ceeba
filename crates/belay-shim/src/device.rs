//! Reads of the FUSE device, and writes of belay's own.

use crate::effects::epoch::clock;
use crate::effects::{Policy, policy};
use crate::give::{give, give_with};
use crate::populate;
use crate::real;
use crate::start::{Shim, disconnected, now};
use crate::wake::LOOK;
use belay_oplog::InPlace;
use belay_recorder::Slot;
use belay_recorder::control::Instant;
use belay_session::{Incoming, Phase, Session, Work};
use belay_sys::Mapping;
use belay_wire::{Opcode, get_u64};
use libc::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, MutexGuard};

/// What is to be done before the device is read.
pub(crate) enum Before {
    /// Give this to the daemon, and these data behind it.
    Deliver(Vec<u8>, InPlace),
    /// Read the device.
    Read,
    /// The device had nothing for a while; look again.
    Again,
    /// read(2) fails with this: ENODEV when the mount has gone, EINTR when a signal has come meanwhile.
    Fail(c_int),
}

/// What to do with a message that was read.
pub(crate) enum After {
    /// Give it to the daemon; its length.
    Deliver(usize),
    /// It was taken.
    Again,
}

impl Shim {
    /// read(2) on the device `fd` by the daemon.
    ///
    /// Like libc's, it is a cancellation point; no value with a destructor lives across the read.
    pub(crate) fn read(&self, fd: c_int, buffer: *mut u8, len: usize) -> isize {
        self.effects_rest();
        let polled = self.waiting.is_used(); // this load is all that a daemon pays which never polls
        let mut aborted = false;
        loop {
            let before = if polled { self.before_polled_read() } else { self.before_read() };
            match before {
                Before::Again => {
                    real::look_for_cancellation();
                    continue;
                }
                Before::Deliver(head, data) => {
                    let given = give_with(&head, (&data, &self.memory), buffer, len);
                    if !data.is_empty() {
                        self.epoch_forwarded(); // the copy is not the daemon's time
                    }
                    return given;
                }
                Before::Fail(errno) => return real::fail(errno),
                Before::Read => {}
            }
            let slot = self.claim();
            let n = match slot {
                None => {
                    populate::once(buffer, len);
                    // SAFETY: the daemon's own arguments to read(2), passed on unchanged.
                    unsafe { real::read(fd, buffer.cast(), len) }
                }
                Some(slot) => self.read_into(slot, buffer, len),
            };
            if polled {
                self.polled_read_ended();
            }
            let Ok(got) = usize::try_from(n) else {
                let errno = real::errno();
                self.unclaim(slot);
                if self.reads_again(errno, &mut aborted) {
                    continue;
                }
                real::set_errno(errno);
                return n;
            };
            // SAFETY: the kernel has just filled `got` bytes of the daemon's buffer, which is the
            // calling thread's alone until read(2) returns to it.
            let message = unsafe { std::slice::from_raw_parts_mut(buffer, got) };
            match self.after_read(message, slot) {
                After::Deliver(len) => return len as isize,
                After::Again => {}
            }
        }
    }

    pub(crate) fn copies(&self) -> bool {
        self.copies.load(Relaxed)
    }

    /// Whether the daemon is not to hear of it yet that its device could not be read. `aborted`: whether that was said to be
    /// aborted by the read before.
    #[cold]
    pub(crate) fn reads_again(&self, errno: c_int, aborted: &mut bool) -> bool {
        match errno {
            // The kernel says so as well of a request (a last RELEASE) that was about to be read when the mount ended
            // (fuse_dev_do_read in fs/fuse/dev.c). The next read tells which: daemons take an abort for an error.
            libc::ECONNABORTED => !std::mem::replace(aborted, true),
            libc::ENODEV => {
                disconnected();
                self.epoch_goes_on()
            }
            _ => false,
        }
    }

    #[inline]
    fn claim(&self) -> Option<Slot> {
        // Also before INIT is answered: what a thread is given that sleeps in its read meanwhile is the first request, say.
        if self.copies.load(Relaxed) { self.claim_one() } else { None }
    }

    #[cold]
    fn claim_one(&self) -> Option<Slot> {
        loop {
            if let Some(slot) = self.session().claim_slot() {
                return Some(slot);
            }
            // Every slot is in use: another thread's reply frees one.
            std::thread::yield_now();
        }
    }

    fn unclaim(&self, slot: Option<Slot>) {
        if slot.is_some() {
            self.session().unclaim(slot);
        }
    }

    /// Reads into the recorder first, so that a request cannot be lost between kernel and daemon.
    pub(crate) fn read_into(&self, slot: Slot, buffer: *mut u8, len: usize) -> isize {
        let (at, max) = self.session().store().slot_copy(slot);
        let max = max.min(len);
        populate::once(self.memory.words().as_ptr().cast::<u8>().wrapping_add(at), max);
        match self.memory.read_from(self.device.as_fd(), at, max) {
            Ok(got) => {
                let message = self.session().store().slot_copy_bytes(slot, got);
                give(&message, buffer, len)
            }
            Err(errno) => {
                real::set_errno(errno);
                -1
            }
        }
    }

    /// What there is to do besides reading the device.
    #[inline]
    pub(crate) fn before_read(&self) -> Before {
        if self.ready.load(Acquire) && !self.pending.load(Acquire) && !self.look.load(Acquire) {
            return Before::Read;
        }
        self.look_before_read(false)
    }

    #[cold]
    pub(crate) fn look_before_read(&self, fetches: bool) -> Before {
        let hurried = || fetches || !self.reads_wait();
        if !self.ready.load(Acquire) {
            if let Some(init) = self.recorded_init() {
                return Before::Deliver(init, InPlace::default());
            }
            if self.generation == 0 || self.init_unique.load(Acquire) == 0 {
                return Before::Read;
            }
            if hurried() {
                self.nap_if_readable();
                return Before::Fail(libc::EAGAIN); // the bell is rung when INIT is settled
            }
            // libfuse starts a second thread while the first still has INIT in hand. What that one
            // took from the kernel now would be missing when the first collects what was in flight.
            std::thread::sleep(std::time::Duration::from_micros(100));
            return Before::Again;
        }
        if self.epochs.is_retiring() {
            return self.retire();
        }
        if policy() == Policy::Epoch {
            self.look.swap(false, AcqRel); // what is said from here on is for the next look
            self.epoch_trim();
        }
        if !self.collected.load(Relaxed) && self.is_fenced() && hurried() {
            if self.has_ended() {
                return Before::Read; // the kernel says so
            }
            self.nap_if_readable();
            self.ring_in(LOOK);
            return Before::Fail(libc::EAGAIN);
        }
        let mut session = self.session();
        session.reap();
        if !self.collected.load(Relaxed) {
            if !self.await_fence() {
                return Before::Read; // the kernel says that it has gone
            }
            self.collected.store(true, Relaxed);
            self.look_for_cut(&mut session);
            self.collect(&mut session);
        }
        self.epoch_look(&mut session);
        let settled = session.phase() != Phase::Settling;
        let work = session.work(now());
        if matches!(work, Some(Work::Seal)) {
            self.epoch_seal(&mut session);
        }
        let settling = session.phase() == Phase::Settling;
        let kick = session.take_kick();
        // A checkpoint goes on when what has begun is answered, by whichever thread: the kernel may know no file to wake a reader by, and
        // what it is asked instead waits for the checkpoint.
        let quiescing = session.phase() == Phase::Quiescing;
        let starved = session.is_starved() || session.is_awaiting() || quiescing;
        // What was due could not be begun before this, and nobody else looks.
        let may_begin = !settled && !settling && policy() == Policy::Epoch && self.epochs.is_due();
        self.pending.store(!session.is_quiet(), Release);
        let delivery = match &work {
            Some(Work::Deliver(message) | Work::DeliverWith(message, _)) => Some(&**message),
            _ => None,
        };
        // Whoever gives it to the daemon tells that it is begun.
        let begun = delivery.filter(|_| !fetches);
        let slot = begun.and_then(|message| self.effects_begin(&session, message));
        let forwards = session.is_rolling_forward();
        drop(session);
        if let Some(message) = begun {
            let turn = self.effects_turn(message);
            self.effects_assign(turn, slot);
        }
        self.note_open(settling);
        if kick || settling && delivery.is_some() {
            self.wake(settling); // also to watch whether the daemon's work holds up what is left
        }
        if forwards && delivery.is_some() {
            self.epoch_forwarded();
        }
        match work {
            Some(Work::Deliver(message)) => Before::Deliver(message, InPlace::default()),
            Some(Work::DeliverWith(head, data)) => Before::Deliver(head, data),
            Some(Work::Answer(message)) => {
                self.answer(&message);
                Before::Again
            }
            Some(Work::Seal) => Before::Again,
            Some(Work::Retire) => self.retire(),
            None if may_begin => {
                self.look.store(true, Release);
                Before::Again
            }
            None if settling || starved => self.wait_a_little(settling, hurried()),
            None => Before::Read,
        }
    }

    /// Takes a message that was read from the device, in place.
    pub(crate) fn after_read(&self, message: &mut [u8], slot: Option<Slot>) -> After {
        if opcode(message) == Opcode::INIT {
            return self.init_read(message, slot);
        }
        let turn = self.effects_turn(message);
        let Some(mut session) = self.take_message(message, slot) else {
            self.effects_leave(turn);
            return After::Again;
        };
        let slot = self.effects_begin(&session, message);
        self.effects_assign(turn, slot);
        session.let_go(&self.direct);
        After::Deliver(length(message).min(message.len()))
    }

    /// Gives a message to the session. `None` if it keeps it.
    #[inline]
    pub(crate) fn take_message(
        &self,
        message: &mut [u8],
        slot: Option<Slot>,
    ) -> Option<MutexGuard<'_, Session<Arc<Mapping>>>> {
        let mut session = self.reaped();
        let settling = session.phase() == Phase::Settling;
        if policy() == Policy::Epoch {
            session.set_time(clock::real());
            if opcode(message) == Opcode::DESTROY {
                self.epochs.destroyed.store(true, Relaxed);
            }
        }
        let slot = match slot {
            None if self.copies.load(Relaxed) => session.copy_late(message),
            slot => slot,
        };
        let taken = session.on_request(message, slot, if settling { now() } else { 0 });
        if taken == Incoming::Taken {
            self.woken(message);
            self.pending.store(!session.is_quiet(), Release);
            // Under the policy `epoch` a kick may be to say that there is something to look at.
            if policy() == Policy::Epoch {
                self.look.store(true, Release);
            }
            return None;
        }
        if policy() == Policy::Epoch {
            self.epoch_taken(opcode(message), &session);
        }
        Some(session)
    }

    #[cold]
    pub(crate) fn init_read(&self, message: &mut [u8], slot: Option<Slot>) -> After {
        self.unclaim(slot);
        if let Some(reply) = self.init_from_kernel(message) {
            self.write(&reply);
            return After::Again;
        }
        After::Deliver(message.len())
    }

    /// The session, told of the slots that were freed without it.
    #[inline]
    fn reaped(&self) -> MutexGuard<'_, Session<Arc<Mapping>>> {
        let mut session = self.session();
        if self.freed.load(Relaxed) {
            // What is freed from here on may be missed, until a further one is.
            self.freed.store(false, Relaxed);
            session.reap();
        }
        session
    }

    /// Takes the head of a long WRITE, in place, if nothing but its ids need a change.
    pub(crate) fn pass_head(&self, head: &mut [u8]) -> bool {
        let turn = self.effects_turn(head);
        let mut session = self.reaped();
        if !session.passes(head) || session.on_request(head, None, 0) != Incoming::Deliver {
            return false; // all of it is looked at next, with its turn kept
        }
        let slot = self.effects_begin(&session, head);
        self.effects_assign(turn, slot);
        session.let_go(&self.direct);
        true
    }

    /// Writes a message of belay's own; gives 0 or the errno.
    pub(crate) fn write(&self, message: &[u8]) -> i32 {
        // SAFETY: a live descriptor and a readable buffer of that length.
        let n = unsafe {
            belay_sys::raw::syscall(
                libc::SYS_write,
                self.device.as_raw_fd(),
                message.as_ptr(),
                message.len(),
            )
        };
        if n < 0 { real::errno() } else { 0 }
    }

    fn answer(&self, message: &[u8]) {
        let errno = self.write(message);
        let unique = get_u64(message, 8).unwrap_or(0);
        let mut session = self.session();
        if errno == libc::ENOENT && !self.copies.load(Relaxed) {
            session.on_refused(unique);
        } else {
            // From a copy, a reply that the kernel has already is refused too.
            session.on_delivered(unique);
        }
        self.pending.store(!session.is_quiet() || session.phase() == Phase::Settling, Release);
        drop(session);
        if !self.replied.load(Relaxed) && unique != 0 {
            self.note_reply(unique);
        }
    }

    #[cold]
    pub(crate) fn note_reply(&self, unique: u64) {
        // Replies to injected requests do not count: no application waits for them.
        if unique & (1 << 62) == 0 && !self.replied.swap(true, Relaxed) {
            self.reach(Instant::FirstReply);
        }
    }

    fn note_open(&self, settling: bool) {
        if !settling && !self.opened.load(Relaxed) && !self.opened.swap(true, Relaxed) {
            self.reach(Instant::Open);
        }
    }
}

pub(crate) fn opcode(message: &[u8]) -> Opcode {
    word(message, 4).map_or(Opcode(0), Opcode)
}

pub(crate) fn length(message: &[u8]) -> usize {
    word(message, 0).unwrap_or(0) as usize
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    message.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}
