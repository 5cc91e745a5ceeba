//! What the host stands on here: the held device, the daemon's own process, and the policy.

use crate::dying;
use crate::effects::epoch::clock;
use crate::effects::transaction::turn::Turn;
use crate::populate;
use crate::real;
use crate::shim::{Shim, now};
use crate::waiting::doze;
use belay_host::{Device, EffectHooks, Fault, Process, Readiness};
use belay_recorder::Slot;
use belay_recorder::control::Options;
use belay_session::{Session, describe_reply};
use belay_sys::Mapping;
use belay_wire::{Opcode, OutHeader};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::FromBytes;

/// How long to wait for other threads, and for the committer.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

impl Device for Shim {
    type Buffer = populate::Buffer;

    fn buffer(&self, len: usize) -> populate::Buffer {
        populate::buffer(len)
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, i32> {
        rustix::io::read(&self.device, buffer).map_err(rustix::io::Errno::raw_os_error)
    }

    fn read_into_recorder(&self, at: usize, max: usize) -> Result<usize, i32> {
        let memory = self.host.memory();
        populate::once((memory.words().as_ptr() as usize).wrapping_add(at), max, || self.put_off());
        memory.read_from(self.device.as_fd(), at, max)
    }

    fn write(&self, message: &[u8]) -> i32 {
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

    fn readiness(&self) -> Readiness {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let seen = match rustix::event::poll(&mut fds, Some(&none)) {
            Ok(_) => fds.first().map_or(PollFlags::empty(), PollFd::revents),
            Err(_) => PollFlags::empty(),
        };
        Readiness { readable: seen.contains(PollFlags::IN), gone: seen.contains(PollFlags::ERR) }
    }
}

impl Process for Shim {
    fn now(&self) -> u64 {
        now()
    }

    fn tell(&self) {
        Self::tell(self);
    }

    fn serve_from_here(&self) {
        self.claim_for_this_process();
    }

    fn ready(&self) {
        dying::install();
    }

    fn reads_wait(&self) -> bool {
        Self::reads_wait(self)
    }

    fn doze(&self, ns: i64) -> bool {
        match doze(ns) {
            Ok(()) => true,
            Err(rustix::io::Errno::INTR) => false,
            Err(_) => {
                Process::nap(self); // no descriptor to be had
                true
            }
        }
    }

    fn nap(&self) {
        let _ = rustix::thread::nanosleep(&NAP); // not a cancellation point
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_micros(100));
    }

    #[inline]
    fn is_polled(&self) -> bool {
        self.waiting.is_used()
    }

    fn has_readers(&self) -> bool {
        self.waiting.has_readers()
    }

    fn ring(&self) {
        self.waiting.ring();
    }

    fn ring_in(&self, ns: i64) {
        self.waiting.ring_in(ns);
    }

    #[inline]
    fn answering(&self) {
        if self.options.contains(Options::ENDS_UNCONNECTED) {
            self.end_unconnected();
        }
    }

    /// By `abort`, so that the report shows where in the daemon that was. It is on record.
    #[cold]
    fn fault(&self, fault: &Fault<'_>) -> ! {
        let Fault { rule, head, total, body } = *fault;
        let header = OutHeader::read_from_prefix(head).map(|(header, _)| header);
        let reply = match &header {
            Ok(header) => describe_reply(header, total, body),
            Err(_) => format!("{total} bytes"),
        };
        let unique = header.map_or(0, |header| header.unique);
        let request = self.host.session().describe_in_hand(unique);
        let line = |text: &str| text.replace(char::is_control, " ");
        // The request last, as that alone may be long.
        let text = format!("{rule}\n{}\n{}", line(&reply), line(&request));
        self.control().set_violation(self.host.generation(), text.as_bytes());
        eprintln!("belay: the daemon's reply is not passed on: {rule}: {request}; reply {reply}");
        std::process::abort();
    }

    /// Nobody has seen anything of what is not on record.
    #[cold]
    fn unrecordable(&self) -> ! {
        eprintln!(
            "belay: the op-log has no room for what the daemon has done; it is ended, and does that again behind a checkpoint"
        );
        std::process::abort();
    }
}

impl Shim {
    /// The daemon is about to end, as its connection has broken, and says so to who asked by an
    /// error, or by less than there is: it is ended before that goes out, and its successor is
    /// given the request again.
    #[cold]
    fn end_unconnected(&self) {
        if !self.host.is_ready() {
            return self.connection.look(); // it may break before the first reply
        }
        if self.connection.is_gone() {
            eprintln!("belay: the daemon's connection has broken");
            // Past what notes who sends signals: it is no more the request's fault than what comes
            // from outside. SAFETY: a signal to this process, of which no handler runs.
            unsafe {
                belay_sys::raw::syscall(libc::SYS_kill, std::process::id(), libc::SIGKILL);
            }
        }
    }
}

impl EffectHooks<Arc<Mapping>> for Shim {
    type Turn = Turn;

    #[inline]
    fn turn(&self, message: &[u8]) -> Turn {
        self.effects_turn(message)
    }

    #[inline]
    fn begin(&self, session: &Session<Arc<Mapping>>, message: &[u8]) -> Option<Slot> {
        self.effects_begin(session, message)
    }

    #[inline]
    fn assign(&self, turn: Turn, slot: Option<Slot>) {
        self.effects_assign(turn, slot);
    }

    #[inline]
    fn leave(&self, turn: Turn) {
        self.effects_leave(turn);
    }

    #[inline]
    fn replied(&self, unique: u64, failed: bool) -> Option<i32> {
        self.effects_replied(unique, failed)
    }

    #[inline]
    fn decided(&self, unique: u64) {
        self.effects_decided(unique);
    }

    fn inherit(&self, session: &mut Session<Arc<Mapping>>) {
        self.look_for_cut(session);
    }

    #[inline]
    fn keeps_epochs(&self) -> bool {
        self.policy.is_epoch()
    }

    fn arriving(&self, session: &mut Session<Arc<Mapping>>, opcode: Opcode) {
        session.set_time(clock::real());
        if opcode == Opcode::DESTROY
            && let Some(epoch) = self.epoch()
        {
            epoch.destroyed();
        }
    }

    fn arrived(&self, session: &Session<Arc<Mapping>>, opcode: Opcode) {
        if let Some(epoch) = self.epoch() {
            epoch.taken(opcode, session);
        }
    }

    fn trim(&self) {
        if let Some(epoch) = self.epoch() {
            epoch.trim();
        }
    }

    fn look_at_epoch(&self, session: &mut Session<Arc<Mapping>>) {
        if let Some(epoch) = self.epoch() {
            epoch.look(session);
        }
    }

    fn seal(&self, session: &mut Session<Arc<Mapping>>) {
        if let Some(epoch) = self.epoch() {
            epoch.seal(session);
        }
    }

    fn logged(&self, session: &Session<Arc<Mapping>>) {
        if let Some(epoch) = self.epoch() {
            epoch.logged(session);
        }
    }

    fn forwarded(&self) {
        if let Some(epoch) = self.epoch() {
            epoch.forwarded();
        }
    }

    fn answered(&self) {
        if let Some(epoch) = self.epoch() {
            epoch.answered();
        }
    }

    fn is_due(&self) -> bool {
        self.epoch().is_some_and(|epoch| epoch.is_due())
    }
}
