//! Messages that were taken for a daemon that waits for its device with O_NONBLOCK unset.
//!
//! poll(2) says that such a daemon can read, and it reads: if that waited, everything else that its
//! loop is there for would stand still. But not all that makes the bell readable is for the daemon:
//! the kernel's messages may be belay's, or wait for others. So before the daemon is told, the
//! message is taken, and lies here until it reads. (With O_NONBLOCK its read says that there is
//! nothing, which such daemons know.)

use crate::argument::Output;
use crate::populate;
use crate::shim::Shim;
use belay_host::{After, Before, Device, LOOK};
use belay_oplog::InPlace;
use std::sync::TryLockError;

/// The smallest buffer that the kernel accepts, and what a message has besides its data.
const ROOM: usize = 8192;
/// The largest write, before it is known.
const LARGEST: usize = 1 << 20;

/// What a daemon that waits for the device is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A read gives something, if only an error.
    Message,
    /// It would wait.
    Nothing,
    /// A signal has come.
    Interrupted,
}

impl Shim {
    /// The message that was taken first. The calling thread gives it to the daemon.
    fn unstash(&self) -> Option<(Vec<u8>, InPlace)> {
        let taken = self.waiting.stash().messages.pop_front()?;
        self.host.begin(self, &taken.0);
        Some(taken)
    }

    /// What there is to do besides reading the device, where the daemon waits with the bell.
    #[cold]
    pub(crate) fn before_polled_read(&self) -> Before {
        if let Some((message, data)) = self.unstash() {
            return Before::Deliver(message, data);
        }
        self.waiting.begin_reading();
        self.waiting.silence();
        let before = self.host.before_read(self);
        match before {
            Before::Read => {} // until `polled_read_ended`
            Before::Deliver(..) => self.polled_read_ended(),
            _ => self.waiting.end_reading(),
        }
        before
    }

    /// The read that [`Shim::before_polled_read`] has let the thread make is over, or is not made.
    /// It may have been somebody's turn to look again by a timer, which it has silenced. errno
    /// stays.
    #[cold]
    pub(crate) fn polled_read_ended(&self) {
        let errno = crate::real::errno();
        self.waiting.end_reading();
        self.host.ring_for_more(self);
        crate::real::set_errno(errno);
    }

    /// Whether a read of the device gives something without waiting, now that the bell is readable.
    /// What is found stays rung for until it is read.
    pub(crate) fn has_message(&self) -> Found {
        if self.waiting.is_nonblocking() {
            return Found::Message;
        }
        // A cancelled thread has the same as a read that fails.
        let errno = crate::real::errno();
        let found = match self.waiting.fetching.try_lock() {
            Ok(turn) => {
                let found = self.fetch();
                drop(turn);
                found
            }
            // The bell rings for what another one finds.
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                Found::Nothing
            }
            Err(TryLockError::Poisoned(_)) => Found::Message,
        };
        crate::real::set_errno(errno);
        found
    }

    fn fetch(&self) -> Found {
        loop {
            if !self.waiting.stash().messages.is_empty() {
                return Found::Message;
            }
            self.waiting.silence();
            match self.host.before_fetch(self) {
                Before::Deliver(message, data) => {
                    self.waiting.stash().messages.push_back((message, data));
                    self.waiting.ring();
                    return Found::Message;
                }
                Before::Again => continue,
                Before::Fail(libc::EAGAIN) => return Found::Nothing,
                Before::Fail(_) => {
                    self.waiting.ring(); // the next one is to hear of it as well
                    return Found::Message;
                }
                Before::Read => {}
            }
            let seen = self.readiness();
            if !seen.readable {
                // Where it has gone, its read fails.
                return if seen.gone { Found::Message } else { Found::Nothing };
            }
            let slot = if self.host.copies() {
                let Some(slot) = self.host.session().claim_slot() else {
                    self.host.nap_if_readable(self);
                    self.waiting.ring_in(LOOK);
                    return Found::Nothing;
                };
                Some(slot)
            } else {
                None
            };
            let largest = usize::try_from(self.control().max_write()).unwrap_or(0);
            let largest = if largest == 0 { LARGEST } else { largest };
            let mut buffer = std::mem::take(&mut self.waiting.stash().spare);
            buffer.resize(largest.min(64 << 20) + ROOM, 0);
            populate::once(buffer.as_ptr() as usize, buffer.len(), || self.put_off());
            // A thread that simply reads may take the message first: then this one sleeps there,
            // and can be woken.
            self.waiting.begin_reading();
            let got = match slot {
                Some(slot) => {
                    let mut room = Output::from(buffer.as_mut_slice());
                    usize::try_from(self.read_into(slot, &mut room))
                        .map_err(|_| crate::real::errno())
                }
                None => rustix::io::read(&self.device, &mut buffer[..])
                    .map_err(rustix::io::Errno::raw_os_error),
            };
            self.waiting.end_reading();
            let got = match got {
                Ok(got) => got,
                Err(errno) => {
                    if slot.is_some() {
                        self.host.session().unclaim(slot);
                    }
                    self.waiting.stash().spare = buffer;
                    match errno {
                        libc::EINTR => return Found::Interrupted,
                        // The request was aborted meanwhile, or another thread had it.
                        libc::ENOENT | libc::EAGAIN => continue,
                        _ => return Found::Message, // as the daemon's own read will find
                    }
                }
            };
            let after = match buffer.get_mut(..got) {
                Some(message) => self.host.after_fetch(self, message, slot),
                None => After::Again,
            };
            let mut stash = self.waiting.stash();
            if let After::Deliver(len) = after {
                let message = buffer.get(..len).unwrap_or_default().to_vec();
                stash.messages.push_back((message, InPlace::default()));
                stash.spare = buffer;
                drop(stash);
                self.waiting.ring();
                return Found::Message;
            }
            stash.spare = buffer;
        }
    }
}
