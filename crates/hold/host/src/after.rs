//! What becomes of a message that was read from the device.

use crate::environment::Environment;
use crate::head::{length, opcode};
use crate::host::Host;
use belay_memory::Memory;
use belay_recorder::Slot;
use belay_session::{Incoming, Phase, Session};
use belay_wire::Opcode;
use std::sync::MutexGuard;

/// What to do with a message that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Give it to the daemon; its length.
    Deliver(usize),
    /// It was taken.
    Again,
}

impl<M: Memory> Host<M> {
    /// Takes a message that was read, in place, from a thread that gives it to the daemon next.
    /// `slot`: where it was copied to.
    #[inline]
    pub fn after_read(
        &self,
        env: &impl Environment<M>,
        message: &mut [u8],
        slot: Option<Slot>,
    ) -> After {
        if opcode(message) == Opcode::INIT {
            return self.init_read(env, message, slot);
        }
        let turn = env.turn(message);
        let Some(mut session) = self.take(env, message, slot) else {
            env.leave(turn);
            return After::Again;
        };
        let slot = env.begin(&session, message);
        env.assign(turn, slot);
        self.let_go(&mut session, message)
    }

    /// The same of a message that is not yet given to the daemon: whoever does that tells that it
    /// is begun ([`Self::begin`]).
    pub fn after_fetch(
        &self,
        env: &impl Environment<M>,
        message: &mut [u8],
        slot: Option<Slot>,
    ) -> After {
        if opcode(message) == Opcode::INIT {
            return self.init_read(env, message, slot);
        }
        match self.take(env, message, slot) {
            None => After::Again,
            Some(mut session) => self.let_go(&mut session, message),
        }
    }

    /// The message goes to the daemon, from now or by and by.
    #[inline]
    fn let_go(&self, session: &mut Session<M>, message: &[u8]) -> After {
        session.let_go(&self.direct);
        After::Deliver(length(message).min(message.len()))
    }

    /// The thread gives `message` to the daemon, which another has fetched.
    pub fn begin(&self, env: &impl Environment<M>, message: &[u8]) {
        let turn = env.turn(message);
        let session = self.session();
        let slot = env.begin(&session, message);
        drop(session);
        env.assign(turn, slot);
    }

    /// Takes the head of a long WRITE, in place, if nothing but its ids need a change. If not, all
    /// of it is looked at next, with its turn kept.
    pub fn pass_head(&self, env: &impl Environment<M>, head: &mut [u8]) -> bool {
        let turn = env.turn(head);
        let mut session = self.reaped();
        if !session.passes(head) || session.on_request(head, None, 0) != Incoming::Deliver {
            return false;
        }
        let slot = env.begin(&session, head);
        env.assign(turn, slot);
        session.let_go(&self.direct);
        true
    }

    /// Gives a message to the session. `None` if it keeps it.
    #[inline]
    fn take(
        &self,
        env: &impl Environment<M>,
        message: &mut [u8],
        slot: Option<Slot>,
    ) -> Option<MutexGuard<'_, Session<M>>> {
        self.woken(message);
        let mut session = self.reaped();
        let settling = session.phase() == Phase::Settling;
        if env.keeps_epochs() {
            env.arriving(&mut session, opcode(message));
        }
        let slot = match slot {
            None if self.copies() => session.copy_late(message),
            slot => slot,
        };
        let taken = session.on_request(message, slot, if settling { env.now() } else { 0 });
        if taken == Incoming::Taken {
            self.note_work(&session, false);
            // A kick may be to say that there is something to look at.
            if env.keeps_epochs() {
                self.look_again();
            }
            return None;
        }
        if env.keeps_epochs() {
            env.arrived(&session, opcode(message));
        }
        Some(session)
    }

    #[cold]
    fn init_read(
        &self,
        env: &impl Environment<M>,
        message: &mut [u8],
        slot: Option<Slot>,
    ) -> After {
        self.unclaim(slot);
        if let Some(reply) = self.init_from_kernel(message) {
            env.write(&reply);
            return After::Again;
        }
        After::Deliver(message.len())
    }
}
