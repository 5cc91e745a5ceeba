//! Messages that were taken for a daemon that waits for its device with O_NONBLOCK unset.
//!
//! poll(2) says that such a daemon can read, and it reads: if that waited, everything else that its loop is there for would
//! stand still. But not all that makes the bell readable is for the daemon: the kernel's messages may be belay's, or wait for
//! others. So before the daemon is told, the message is taken, and lies here until it reads. (With O_NONBLOCK its read
//! says that there is nothing, which such daemons know.)

use crate::device::{After, Before};
use crate::populate;
use crate::start::Shim;
use crate::wake::LOOK;
use belay_oplog::InPlace;
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::sync::PoisonError;

/// The smallest buffer that the kernel accepts, and what a message has besides its data.
const ROOM: usize = 8192;
/// The largest write, before it is known.
const LARGEST: usize = 1 << 20;

/// What was taken.
#[derive(Debug, Default)]
pub(super) struct Stash {
    messages: VecDeque<(Vec<u8>, InPlace)>,
    /// A buffer for the next.
    spare: Vec<u8>,
}

impl Shim {
    fn stash(&self) -> std::sync::MutexGuard<'_, Stash> {
        self.waiting.stash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message that was taken first. The calling thread gives it to the daemon.
    fn unstash(&self) -> Option<(Vec<u8>, InPlace)> {
        let taken = self.stash().messages.pop_front()?;
        let turn = self.effects_turn(&taken.0);
        let session = self.session();
        let slot = self.effects_begin(&session, &taken.0);
        drop(session);
        self.effects_assign(turn, slot);
        Some(taken)
    }

    /// What there is to do besides reading the device, where the daemon waits with the bell.
    #[cold]
    pub(crate) fn before_polled_read(&self) -> Before {
        if let Some((message, data)) = self.unstash() {
            return Before::Deliver(message, data);
        }
        self.silence();
        let before = self.before_read();
        if matches!(before, Before::Deliver(..)) {
            self.ring_for_more();
        }
        before
    }

    /// Whether a read of the device gives something without waiting, now that the bell is readable.
    pub(crate) fn has_message(&self) -> bool {
        if self.waiting.is_nonblocking() {
            return true;
        }
        // A cancelled thread has the same as a read that fails.
        let errno = crate::real::errno();
        let has = self.fetch();
        crate::real::set_errno(errno);
        has
    }

    fn fetch(&self) -> bool {
        loop {
            if !self.stash().messages.is_empty() {
                return true;
            }
            self.silence();
            match self.before_fetch() {
                Before::Deliver(message, data) => {
                    self.stash().messages.push_back((message, data));
                    self.ring_for_more();
                    return true;
                }
                Before::Again => continue,
                Before::Fail(libc::EAGAIN) => return false,
                Before::Fail(_) => {
                    self.ring(); // the next one is to hear of it as well
                    return true;
                }
                Before::Read => {}
            }
            let seen = self.look_at_device();
            if !seen.contains(PollFlags::IN) {
                return seen.contains(PollFlags::ERR); // its read fails
            }
            let slot = if self.copies() {
                let Some(slot) = self.session().claim_slot() else {
                    self.ring_in(LOOK);
                    return false;
                };
                Some(slot)
            } else {
                None
            };
            let largest = usize::try_from(self.control().max_write()).unwrap_or(0);
            let largest = if largest == 0 { LARGEST } else { largest };
            let mut buffer = std::mem::take(&mut self.stash().spare);
            buffer.resize(largest.min(64 << 20) + ROOM, 0);
            populate::once(buffer.as_ptr(), buffer.len());
            let got = match slot {
                Some(slot) => {
                    let (at, len) = (buffer.as_mut_ptr(), buffer.len());
                    usize::try_from(self.read_into(slot, at, len)).ok()
                }
                None => rustix::io::read(&self.device, &mut buffer[..]).ok(),
            };
            let Some(got) = got else {
                if slot.is_some() {
                    self.session().unclaim(slot);
                }
                return true; // as the daemon's own read will find
            };
            let after = match buffer.get_mut(..got) {
                Some(message) => self.after_fetch(message, slot),
                None => After::Again,
            };
            let mut stash = self.stash();
            if let After::Deliver(len) = after {
                let message = buffer.get(..len).unwrap_or_default().to_vec();
                stash.messages.push_back((message, InPlace::default()));
                stash.spare = buffer;
                drop(stash);
                self.ring_for_more();
                return true;
            }
            stash.spare = buffer;
        }
    }
}
