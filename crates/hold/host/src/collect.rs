//! What was in flight at the crash: taken from the kernel, which has it queued again.

use crate::environment::Environment;
use crate::head::opcode;
use crate::host::Host;
use belay_memory::Memory;
use belay_session::{Incoming, Session};
use belay_wire::Opcode;
use std::sync::atomic::Ordering::Relaxed;

/// The smallest buffer that the kernel accepts for a read (FUSE_MIN_READ_BUFFER).
const MIN_READ: usize = 8192;
/// The most that a WRITE carries, as long as the daemon has not said it.
const MAX_WRITE: usize = 1 << 20;

/// How long what a dead generation left behind may hold up its successor, in ns.
const FENCE_LIMIT: u64 = 65_000_000_000;

impl<M: Memory> Host<M> {
    /// Nothing is reissued while processes that the dead generation left behind may still
    /// carry something out for it, nor before this generation's own connections are held. The
    /// supervisor sees to their end meanwhile. False if the mount has ended before that.
    pub(crate) fn await_fence(&self, env: &impl Environment<M>) -> bool {
        while self.is_fenced(env) {
            if Self::has_ended(env) {
                return false;
            }
            env.pause();
        }
        true
    }

    /// Whether nothing may be reissued yet. Should the supervisor be dead itself, its patience is
    /// up here as well.
    pub(crate) fn is_fenced(&self, env: &impl Environment<M>) -> bool {
        let behind = |of: u32| of < self.attachment.generation;
        if !behind(self.control().fence()) && !behind(self.control().held()) {
            return false;
        }
        let now = env.now();
        let since = self.fenced_since.compare_exchange(0, now, Relaxed, Relaxed);
        now.saturating_sub(since.err().unwrap_or(now)) < FENCE_LIMIT
    }

    /// Whether the mount has gone, and with it all that was to be done. Under the policy `epoch`
    /// some is left even then.
    pub(crate) fn has_ended(env: &impl Environment<M>) -> bool {
        !env.keeps_epochs() && env.readiness().gone
    }

    /// Takes from the kernel everything that was in flight at the crash, once the fence is open. It
    /// comes first in the queue, so the first new request ends it.
    pub(crate) fn collect(&self, env: &impl Environment<M>, session: &mut Session<M>) {
        let max_write = usize::try_from(self.control().max_write()).unwrap_or(MAX_WRITE);
        let mut buffer = env.buffer(max_write.max(MIN_READ) + 8192);
        let buffer = buffer.as_mut();
        loop {
            let seen = env.readiness();
            if !seen.readable || seen.gone {
                return;
            }
            let slot = if self.copies() { session.claim_slot() } else { None };
            let got = match slot {
                Some(slot) => {
                    let (at, max) = session.store().slot_copy(slot);
                    let got = env.read_into_recorder(at, max);
                    got.inspect(|got| {
                        let bytes = session.store().slot_copy_bytes(slot, *got);
                        if let Some(place) = buffer.get_mut(..bytes.len()) {
                            place.copy_from_slice(&bytes);
                        }
                    })
                }
                None => env.read(buffer),
            };
            let Ok(got) = got else {
                session.unclaim(slot);
                return;
            };
            let Some(message) = buffer.get_mut(..got) else { return };
            self.woken(message);
            let resent = belay_wire::Request::parse(message).is_ok_and(|r| r.is_resent());
            // Interrupts and forgets come from queues of their own, before and between the others.
            let aside = matches!(
                opcode(message),
                Opcode::FORGET | Opcode::BATCH_FORGET | Opcode::INTERRUPT | Opcode::NOTIFY_REPLY
            );
            match opcode(message) {
                Opcode::INIT => {
                    session.unclaim(slot);
                    if let Some(reply) = self.answer_again(message) {
                        env.write(&reply);
                    }
                }
                _ => {
                    if session.on_request(message, slot, env.now()) == Incoming::Deliver {
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
