//! Reads and writes of the FUSE device.

use crate::populate;
use crate::real;
use crate::start::{Shim, disconnected, now};
use belay_recorder::control::{Instant, flags};
use belay_recorder::{MAX_REPLY, Slot};
use belay_session::{Incoming, Outgoing, Phase, Work};
use belay_wire::{Opcode, get_u64};
use libc::{c_int, iovec};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The smallest buffer that the kernel accepts for a read (FUSE_MIN_READ_BUFFER).
const MIN_READ: usize = 8192;

/// How long what a dead generation left behind may hold up its successor, in ns.
const FENCE_LIMIT: u64 = 65_000_000_000;

/// What is to be done before the device is read.
pub(crate) enum Before {
    /// Give this to the daemon.
    Deliver(Vec<u8>),
    /// Read the device.
    Read,
    /// The device had nothing for a while; look again.
    Again,
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
        loop {
            match self.before_read() {
                Before::Again => continue,
                Before::Deliver(message) => return give(&message, buffer, len),
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
            let Ok(got) = usize::try_from(n) else {
                let errno = real::errno();
                self.unclaim(slot);
                if errno == libc::ENODEV {
                    disconnected();
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

    fn claim(&self) -> Option<Slot> {
        if !self.copies.load(Relaxed) || !self.ready.load(Relaxed) {
            return None;
        }
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
    fn read_into(&self, slot: Slot, buffer: *mut u8, len: usize) -> isize {
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
    pub(crate) fn before_read(&self) -> Before {
        if !self.ready.load(Acquire)
            && let Some(init) = self.recorded_init()
        {
            return Before::Deliver(init);
        }
        if !self.pending.load(Acquire) || !self.ready.load(Relaxed) {
            return Before::Read;
        }
        let mut session = self.session();
        if !self.collected.swap(true, Relaxed) {
            self.collect(&mut session);
        }
        let work = session.work(now());
        let settling = session.phase() == Phase::Settling;
        let kick = session.take_kick();
        self.pending.store(!session.is_quiet(), Release);
        drop(session);
        self.note_open(settling);
        if kick {
            self.kick();
        }
        match work {
            Some(Work::Deliver(message)) => Before::Deliver(message),
            Some(Work::Answer(message)) => {
                self.answer(&message);
                Before::Again
            }
            None if settling => self.wait_a_little(),
            None => Before::Read,
        }
    }

    /// While requests are being settled nobody may sleep in the kernel for long: one of them may
    /// turn out to hold up the others.
    fn wait_a_little(&self) -> Before {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => {
                self.session().tick(now());
                Before::Again
            }
            _ => Before::Read,
        }
    }

    /// Nothing is issued again while processes that the dead generation left behind may still
    /// carry something out for it, nor before this generation's own connections are held. The supervisor sees to their end meanwhile; should it be dead
    /// itself, its patience is up here as well.
    fn await_fence(&self) {
        let end = now() + FENCE_LIMIT;
        let behind = |of: u32| of < self.generation;
        while (behind(self.control().fence()) || behind(self.control().held())) && now() < end {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }

    /// Takes from the kernel everything that was in flight at the crash. It comes first in the
    /// queue, so the first new request ends it.
    fn collect(&self, session: &mut belay_session::Session<std::sync::Arc<belay_sys::Mapping>>) {
        self.await_fence();
        let max_write = usize::try_from(self.control().max_write()).unwrap_or(1 << 20);
        let mut buffer = vec![0; max_write.max(MIN_READ) + 8192];
        populate::now(buffer.as_ptr() as usize, buffer.len());
        loop {
            let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
            let now_only = Timespec { tv_sec: 0, tv_nsec: 0 };
            if !matches!(rustix::event::poll(&mut fds, Some(&now_only)), Ok(1))
                || fds.iter().any(|fd| fd.revents().contains(PollFlags::ERR))
            {
                return;
            }
            let slot = if self.copies.load(Relaxed) { session.claim_slot() } else { None };
            let got = match slot {
                Some(slot) => {
                    let (at, max) = session.store().slot_copy(slot);
                    let place = self.memory.words().as_ptr().cast::<u8>().wrapping_add(at);
                    populate::once(place, max);
                    let got = self.memory.read_from(self.device.as_fd(), at, max);
                    got.inspect(|got| {
                        let bytes = session.store().slot_copy_bytes(slot, *got);
                        if let Some(place) = buffer.get_mut(..bytes.len()) {
                            place.copy_from_slice(&bytes);
                        }
                    })
                }
                None => {
                    rustix::io::read(&self.device, &mut buffer[..]).map_err(|e| e.raw_os_error())
                }
            };
            let Ok(got) = got else {
                session.unclaim(slot);
                return;
            };
            let Some(message) = buffer.get_mut(..got) else { return };
            let resent = belay_wire::Request::parse(message).is_ok_and(|r| r.is_resent());
            // Interrupts and forgets come from queues of their own, before and between the others.
            let aside = matches!(
                opcode(message),
                Opcode::FORGET | Opcode::BATCH_FORGET | Opcode::INTERRUPT | Opcode::NOTIFY_REPLY
            );
            match opcode(message) {
                Opcode::INIT => {
                    session.unclaim(slot);
                    if let Some(reply) = self.init_from_kernel(message) {
                        self.write(&reply);
                    }
                }
                _ => {
                    if session.on_request(message, slot, now()) == Incoming::Deliver {
                        // FORGET, INTERRUPT: they wait for nobody.
                        session.pass_on(message);
                    }
                }
            }
            if !resent && !aside {
                return;
            }
        }
    }

    /// Takes a message that was read from the device, in place.
    pub(crate) fn after_read(&self, message: &mut [u8], slot: Option<Slot>) -> After {
        if opcode(message) == Opcode::INIT {
            self.unclaim(slot);
            if let Some(reply) = self.init_from_kernel(message) {
                self.write(&reply);
                return After::Again;
            }
            return After::Deliver(message.len());
        }
        let mut session = self.session();
        let settling = session.phase() == Phase::Settling;
        let taken = session.on_request(message, slot, if settling { now() } else { 0 });
        if taken == Incoming::Taken {
            self.pending.store(!session.is_quiet(), Release);
            return After::Again;
        }
        After::Deliver(length(message).min(message.len()))
    }

    /// Takes the head of a long WRITE, in place, if nothing but its ids need a change.
    pub(crate) fn pass_head(&self, head: &mut [u8]) -> bool {
        let mut session = self.session();
        session.passes(head) && session.on_request(head, None, 0) == Incoming::Deliver
    }

    /// A message that the daemon writes to the device `fd`, as the kernel would see it.
    pub(crate) fn write_vectored(&self, fd: c_int, iov: *const iovec, count: c_int) -> isize {
        // SAFETY: the daemon's arguments to writev(2): `count` iovecs whose buffers are readable
        // until it returns. An invalid count gives an empty slice.
        let parts = unsafe { std::slice::from_raw_parts(iov, usize::try_from(count).unwrap_or(0)) };
        let total: usize = parts.iter().map(|part| part.iov_len).sum();
        let mut head = [0; MAX_REPLY];
        let filled = gather(parts, &mut head);
        let head = head.get(..filled).unwrap_or(&[]);
        // SAFETY: the daemon's own arguments, passed on unchanged.
        let pass = || unsafe { libc::syscall(libc::SYS_writev, fd, iov, count) as isize };
        let full = || whole(parts, total);
        self.outgoing(head, total, full, pass)
    }

    /// Takes a message from the daemon: `head` are its first bytes, `full` gives all, `pass`
    /// writes it to the device as it is.
    pub(crate) fn outgoing(
        &self,
        head: &[u8],
        total: usize,
        full: impl FnOnce() -> Vec<u8>,
        pass: impl Fn() -> isize,
    ) -> isize {
        if self.is_init_reply(head) {
            if !self.init_reply(head) {
                return total as isize;
            }
            let written = pass();
            if written >= 0 {
                self.init_delivered();
            }
            return written;
        }
        let unique = get_u64(head, 8).unwrap_or(0);
        let mut session = self.session();
        let outgoing = session.on_reply(head, full);
        let kick = session.take_kick();
        let settling = session.phase() == Phase::Settling;
        let full = session.is_full();
        self.pending.store(settling || !session.is_quiet(), Release);
        drop(session);
        if full {
            self.degraded();
        }
        let written = match outgoing {
            Outgoing::Pass => pass(),
            Outgoing::PassKept => {
                let written = pass();
                let errno = real::errno();
                self.session().on_delivered(unique);
                real::set_errno(errno);
                written
            }
            Outgoing::Replace(message) => self.replaced(message.as_bytes(), unique, total),
            Outgoing::ReplaceLong(message) => self.replaced(&message, unique, total),
            Outgoing::Swallow => total as isize,
            Outgoing::Refuse(errno) => {
                real::set_errno(errno);
                -1
            }
        };
        if !self.replied.load(Relaxed) && written >= 0 && unique != 0 {
            self.note_reply(unique);
        }
        if kick {
            let errno = real::errno();
            self.kick();
            real::set_errno(errno);
        }
        written
    }

    /// The recorder is full: what happens from now on may not survive a crash, and that is said.
    fn degraded(&self) {
        if !self.control().has(flags::DEGRADED) {
            self.control().raise(flags::DEGRADED);
            self.tell();
        }
    }

    fn replaced(&self, message: &[u8], unique: u64, total: usize) -> isize {
        let errno = self.write(message);
        if errno == libc::ENOENT {
            self.session().on_refused(unique);
        } else {
            self.session().on_delivered(unique);
        }
        if errno == 0 {
            return total as isize;
        }
        real::set_errno(errno);
        -1
    }

    /// Writes a message of belay's own; gives 0 or the errno.
    pub(crate) fn write(&self, message: &[u8]) -> i32 {
        // SAFETY: a live descriptor and a readable buffer of that length.
        let n = unsafe {
            libc::syscall(libc::SYS_write, self.device.as_raw_fd(), message.as_ptr(), message.len())
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

    fn kick(&self) {
        self.write(&belay_session::Session::<belay_sys::Mapping>::kick_message());
    }

    fn note_reply(&self, unique: u64) {
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

/// Copies a message into the daemon's buffer, as read(2) would.
pub(crate) fn give(message: &[u8], buffer: *mut u8, len: usize) -> isize {
    if message.len() > len {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the daemon's buffer has `len` bytes, the message fits (just checked), and the two
    // do not overlap: the message is the shim's own.
    unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), buffer, message.len()) };
    message.len() as isize
}

/// Copies as much as fits from the iovecs.
fn gather(parts: &[iovec], out: &mut [u8]) -> usize {
    let mut at = 0;
    for part in parts {
        if part.iov_len == 0 {
            continue;
        }
        // SAFETY: an iovec of the daemon's writev(2): readable for iov_len bytes until it returns.
        let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
        let room = out.get_mut(at..).unwrap_or(&mut []);
        let n = room.len().min(bytes.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..n), bytes.get(..n)) {
            room.copy_from_slice(bytes);
        }
        at += n;
    }
    at
}

/// Copies all that the iovecs hold.
fn whole(parts: &[iovec], total: usize) -> Vec<u8> {
    let mut message = Vec::with_capacity(total);
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        // SAFETY: an iovec of the daemon's writev(2): readable for iov_len bytes until it returns.
        let bytes = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
        message.extend_from_slice(bytes);
    }
    message
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
