//! Looks at the device of threads that may not simply sleep in a read of it.

use super::doze;
use crate::device::{After, Before, length, opcode};
use crate::start::{Shim, now};
use crate::wake::LOOK;
use belay_recorder::Slot;
use belay_session::Phase;
use belay_wire::Opcode;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::sync::atomic::Ordering::Acquire;

impl Shim {
    /// What [`Shim::before_read`] says, for a thread that will not read, but says whether that would give something: it waits for nothing, for
    /// which it gives EAGAIN, and what it is given is not yet given to the daemon.
    pub(crate) fn before_fetch(&self) -> Before {
        if self.ready.load(Acquire) && !self.pending.load(Acquire) && !self.look.load(Acquire) {
            return Before::Read;
        }
        self.look_before_read(true)
    }

    /// While requests are being settled, or wait for a slot, nobody may sleep in the kernel for long:
    /// one of them may turn out to hold up the others, and a slot may become free unheard.
    pub(crate) fn wait_a_little(&self, settling: bool, hurried: bool) -> Before {
        let mut counted_on = false;
        if !hurried {
            let dozed;
            (dozed, counted_on) = self.wake.while_looking(|| doze(LOOK));
            match dozed {
                // As read(2) says, if the handler is one without SA_RESTART: it may have asked the daemon to end.
                Err(rustix::io::Errno::INTR) => {
                    if counted_on {
                        self.wake(settling); // the daemon may not come back
                    }
                    return Before::Fail(libc::EINTR);
                }
                Err(_) => self.nap(), // no descriptor to be had
                Ok(()) => {}
            }
        }
        let seen = self.look_at_device();
        if seen.is_empty() || settling && seen.contains(PollFlags::ERR) {
            // Gone is the mount in the second case: what was acknowledged is still being done again.
            if hurried && !seen.is_empty() {
                self.nap();
            }
            let mut session = self.session();
            session.tick(now());
            let still = settling == (session.phase() == Phase::Settling);
            drop(session);
            if hurried && still {
                self.ring_in(LOOK);
                return Before::Fail(libc::EAGAIN);
            }
            return Before::Again;
        }
        // Another thread may take the message first, and this one sleep until the next.
        if counted_on { Before::Again } else { Before::Read }
    }

    /// What [`Shim::after_read`] says, of a message that is not yet given to the daemon: whoever does that tells that it is begun.
    pub(crate) fn after_fetch(&self, message: &mut [u8], slot: Option<Slot>) -> After {
        if opcode(message) == Opcode::INIT {
            return self.init_read(message, slot);
        }
        match self.take_message(message, slot) {
            None => After::Again,
            Some(mut session) => {
                session.let_go(&self.direct);
                After::Deliver(length(message).min(message.len()))
            }
        }
    }

    /// Nothing can be taken now, though the device is readable, so that the bell is too: whoever waits with it would look again and
    /// again.
    pub(crate) fn nap_if_readable(&self) {
        if !self.look_at_device().is_empty() {
            self.nap();
        }
    }

    /// Whether the device is readable, or gone.
    pub(crate) fn look_at_device(&self) -> PollFlags {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut fds, Some(&none)) {
            Ok(_) => fds.first().map_or(PollFlags::empty(), PollFd::revents),
            Err(_) => PollFlags::empty(),
        }
    }
}
