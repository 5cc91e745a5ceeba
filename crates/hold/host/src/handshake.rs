//! FUSE_INIT at the device: recorded in the first life, played back in the others.

use crate::environment::Environment;
use crate::host::Host;
use belay_memory::Memory;
use belay_recorder::control::{Decision, Flags, InitState, Instant, Loss};
use belay_session::handshake;
use belay_wire::{Opcode, Unique, get_u64};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

impl<M: Memory> Host<M> {
    /// The recorded INIT, if this daemon has not seen one and the first daemon's reply is known. Of
    /// threads that ask at once, one gets it.
    pub(crate) fn recorded_init(&self, env: &impl Environment<M>) -> Option<Vec<u8>> {
        if self.ready.load(Relaxed) || self.init_unique.load(Relaxed) != 0 {
            return None;
        }
        env.serve_from_here();
        self.control().reach(Instant::FirstRead, env.now());
        let state = self.control().init_state();
        // A kernel without RESEND does not give an unanswered INIT a second time.
        let lost = state == InitState::Requested && self.copies.load(Relaxed);
        if !lost && !matches!(state, InitState::Replying | InitState::Done) {
            return None;
        }
        let message = self.control().init_request();
        // Several threads may come at once: one of them gets it, the others wait until it is
        // settled.
        let unique = get_u64(&message, 8)?;
        self.init_unique.compare_exchange(0, unique, AcqRel, Relaxed).ok()?;
        Some(message)
    }

    /// What an INIT is answered that the kernel has sent again: the dead daemon's reply was
    /// recorded but did not get through.
    pub(crate) fn answer_again(&self, message: &[u8]) -> Option<Vec<u8>> {
        let control = self.control();
        if !matches!(control.init_state(), InitState::Replying | InitState::Done) {
            return None;
        }
        let mut reply = control.init_reply();
        let _ = belay_wire::put_u64(&mut reply, 8, get_u64(message, 8).unwrap_or(0));
        Some(reply)
    }

    /// An INIT from the kernel. `Some` is what to answer without asking the daemon.
    pub(crate) fn init_from_kernel(&self, message: &mut [u8]) -> Option<Vec<u8>> {
        let reply = self.answer_again(message);
        if reply.is_some() {
            return reply;
        }
        let unique = get_u64(message, 8).unwrap_or(0);
        handshake::withhold(message);
        let mut session = self.session();
        if !handshake::kernel_has_resend(message) {
            session.keep_copies();
        }
        self.copies.store(session.keeps_copies(), Relaxed);
        drop(session);
        let control = self.control();
        control.set_init_request(message);
        control.set_init_state(InitState::Requested);
        self.init_unique.store(unique, Relaxed);
        None
    }

    /// Whether a reply is that to INIT.
    #[inline]
    pub(crate) fn is_init_reply(&self, head: &[u8]) -> bool {
        if self.ready.load(Relaxed) {
            return false;
        }
        let expected = self.init_unique.load(Relaxed);
        expected != 0 && get_u64(head, 8) == Some(expected)
    }

    /// The daemon's reply to INIT. `true` if the kernel is to get it.
    pub(crate) fn init_reply(&self, env: &impl Environment<M>, reply: &[u8]) -> bool {
        let control = self.control();
        match control.init_state() {
            InitState::Replying | InitState::Done => {
                let differences = handshake::differences(&control.init_reply(), reply);
                if !differences.is_empty() {
                    let differences = differences.join(", ");
                    if !control.has(Flags::INIT_MISMATCH) {
                        control.raise(Flags::INIT_MISMATCH);
                        let what = format!("a successor negotiates other options: {differences}");
                        control.lose(Loss::Options, &what);
                    }
                    control.decide(&Decision {
                        generation: self.attachment.generation,
                        opcode: Opcode::INIT.0,
                        unique: Unique::unmarked(self.init_unique.load(Relaxed)),
                        node: 0,
                        row: 0,
                        errno: 0,
                        text: format!("negotiates other options: {differences}"),
                    });
                }
                if control.init_state() == InitState::Replying {
                    if self.copies.load(Relaxed) {
                        // The first reply may not have got through; a second one does no harm.
                        env.write(&control.init_reply());
                    }
                    control.set_init_state(InitState::Done);
                }
                self.settled(env);
                false
            }
            _ => {
                control.set_init_reply(reply);
                if let Some(bytes) = handshake::max_write(reply) {
                    control.set_max_write(u64::from(bytes));
                }
                control.set_init_state(InitState::Replying);
                true
            }
        }
    }

    /// The first daemon's reply to INIT has reached the kernel.
    pub(crate) fn init_delivered(&self, env: &impl Environment<M>) {
        self.control().set_init_state(InitState::Done);
        self.settled(env);
    }

    /// INIT is settled: requests can come.
    pub fn settled(&self, env: &impl Environment<M>) {
        env.ready();
        self.session().learn_dialect();
        self.ready.store(true, Release);
        env.ring();
        self.reach(env, Instant::Ready);
    }
}
