//! What was in flight at the crash: taken from the kernel, which has it queued again.

use crate::device::opcode;
use crate::effects::{Policy, policy};
use crate::populate;
use crate::start::{Shim, now};
use belay_session::{Incoming, Session};
use belay_sys::Mapping;
use belay_wire::Opcode;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The smallest buffer that the kernel accepts for a read (FUSE_MIN_READ_BUFFER).
const MIN_READ: usize = 8192;

/// How long what a dead generation left behind may hold up its successor, in ns.
const FENCE_LIMIT: u64 = 65_000_000_000;

impl Shim {
    /// Nothing is issued again while processes that the dead generation left behind may still
    /// carry something out for it, nor before this generation's own connections are held. The
    /// supervisor sees to their end meanwhile. False if the mount has ended before that.
    pub(crate) fn await_fence(&self) -> bool {
        while self.is_fenced() {
            if self.has_ended() {
                return false;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        true
    }

    /// Whether nothing may be issued again yet. Should the supervisor be dead itself, its patience is up here as well.
    pub(crate) fn is_fenced(&self) -> bool {
        let behind = |of: u32| of < self.generation;
        if !behind(self.control().fence()) && !behind(self.control().held()) {
            return false;
        }
        let now = now();
        let since = self.fenced_since.compare_exchange(0, now, Relaxed, Relaxed);
        now.saturating_sub(since.err().unwrap_or(now)) < FENCE_LIMIT
    }

    /// Whether the mount has gone, and with it all that was to be done. Under the policy `epoch` some is left even then.
    pub(crate) fn has_ended(&self) -> bool {
        policy() != Policy::Epoch && self.look_at_device().contains(PollFlags::ERR)
    }

    /// Takes from the kernel everything that was in flight at the crash, once the fence is open. It comes first in the
    /// queue, so the first new request ends it.
    pub(crate) fn collect(&self, session: &mut Session<Arc<Mapping>>) {
        let max_write = usize::try_from(self.control().max_write()).unwrap_or(1 << 20);
        let mut buffer = populate::Buffer::new(max_write.max(MIN_READ) + 8192);
        let buffer = buffer.bytes();
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
}
