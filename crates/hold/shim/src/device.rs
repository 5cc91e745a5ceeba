//! Reads of the FUSE device.

use crate::argument::Output;
use crate::give::{give, give_with};
use crate::populate;
use crate::real;
use crate::shim::{Shim, disconnected};
use belay_host::{After, Before, Device};
use belay_recorder::Slot;
use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec};

/// For how long a thread without work leaves its buffer for later.
const PUT_OFF: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

impl Shim {
    /// read(2) on the device `fd` by the daemon.
    ///
    /// Like libc's, it is a cancellation point; no value with a destructor lives across the read.
    pub(crate) fn read(&self, fd: c_int, mut buffer: Output<'_>) -> isize {
        self.effects_rest();
        let polled = self.waiting.is_used(); // this load is all that a daemon pays which never polls
        let mut aborted = false;
        loop {
            // What is matched is gone when the thread may be cancelled.
            let again = match if polled {
                self.before_polled_read()
            } else {
                self.host.before_read(self)
            } {
                Before::Again => true,
                Before::Deliver(head, data) => {
                    let given = give_with(&head, (&data, self.host.memory()), &mut buffer);
                    if !data.is_empty() {
                        belay_host::EffectHooks::forwarded(self); // the copy is not the daemon's time
                    }
                    return given;
                }
                Before::Fail(errno) => return real::fail(errno),
                Before::Read => false,
            };
            if again {
                real::look_for_cancellation();
                continue;
            }
            let slot = self.host.claim(self);
            let n = match slot {
                None => {
                    let (at, len) = (buffer.pointer(), buffer.len());
                    populate::once(at as usize, len, || self.put_off());
                    // SAFETY: read(2) into memory that may be filled, as its type says.
                    unsafe { real::read(fd, at, len) }
                }
                Some(slot) => self.read_into(slot, &mut buffer),
            };
            if polled {
                self.polled_read_ended();
            }
            let Ok(got) = usize::try_from(n) else {
                let errno = real::errno();
                self.host.unclaim(slot);
                if self.reads_again(errno, &mut aborted) {
                    continue;
                }
                real::set_errno(errno);
                return n;
            };
            match self.host.after_read(self, buffer.filled(got), slot) {
                After::Deliver(len) => return len as isize,
                After::Again => {}
            }
        }
    }

    /// A thread of a successor that has nothing to do yet leaves the processor to those that answer
    /// what applications are waiting for, before it brings its buffer into memory: with a megabyte
    /// for each thread, that is half a millisecond of each thread's start.
    #[cold]
    pub(crate) fn put_off(&self) {
        if self.host.generation() > 0 && !self.waiting.is_used() {
            let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
            let errno = real::errno();
            // What comes of it does not matter: this is only about when.
            let _ = rustix::event::poll(&mut fds, Some(&PUT_OFF));
            real::set_errno(errno);
        }
    }

    /// Whether the daemon is not to hear of it yet that its device could not be read. `aborted`:
    /// whether that was said to be aborted by the read before.
    #[cold]
    pub(crate) fn reads_again(&self, errno: c_int, aborted: &mut bool) -> bool {
        match errno {
            // The kernel says so as well of a request (a last RELEASE) that was about to be read
            // when the mount ended (fuse_dev_do_read in fs/fuse/dev.c). The next read tells which:
            // daemons take an abort for an error.
            libc::ECONNABORTED => !std::mem::replace(aborted, true),
            libc::ENODEV => {
                disconnected();
                self.epoch().is_some_and(|epoch| epoch.goes_on())
            }
            _ => false,
        }
    }

    /// Reads into the recorder first, so that a request cannot be lost between kernel and daemon.
    pub(crate) fn read_into(&self, slot: Slot, buffer: &mut Output<'_>) -> isize {
        let (at, max) = self.host.session().store().slot_copy(slot);
        match self.read_into_recorder(at, max.min(buffer.len())) {
            Ok(got) => {
                let message = self.host.session().store().slot_copy_bytes(slot, got);
                give(&message, buffer)
            }
            Err(errno) => {
                real::set_errno(errno);
                -1
            }
        }
    }
}
