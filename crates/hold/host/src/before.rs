//! What there is to do before the device is read.

use crate::environment::Environment;
use crate::host::Host;
use crate::wake::LOOK;
use belay_memory::Memory;
use belay_oplog::InPlace;
use belay_session::{Phase, Work};
use belay_wire::errno::{EAGAIN, EINTR, ENODEV, ENOENT};
use belay_wire::get_u64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// What is to be done before the device is read.
#[derive(Debug)]
pub enum Before {
    /// Give this to the daemon, and these data behind it.
    Deliver(Vec<u8>, InPlace),
    /// Read the device.
    Read,
    /// The device had nothing for a while; look again.
    Again,
    /// The read fails with this: ENODEV when the mount has gone, EINTR when a signal has come
    /// meanwhile.
    Fail(i32),
}

impl<M: Memory> Host<M> {
    /// For a thread that reads the device next, and may sleep in that.
    #[inline]
    pub fn before_read(&self, env: &impl Environment<M>) -> Before {
        if self.has_nothing_else() {
            return Before::Read;
        }
        self.look_before_read(env, false)
    }

    /// For a thread that will not read, but says whether that would give something: it waits for
    /// nothing, for which it gives EAGAIN, and what it is given is not yet given to the daemon.
    pub fn before_fetch(&self, env: &impl Environment<M>) -> Before {
        if self.has_nothing_else() {
            return Before::Read;
        }
        self.look_before_read(env, true)
    }

    #[inline]
    fn has_nothing_else(&self) -> bool {
        self.ready.load(Acquire) && !self.pending.load(Acquire) && !self.look.load(Acquire)
    }

    #[cold]
    fn look_before_read(&self, env: &impl Environment<M>, fetches: bool) -> Before {
        let hurried = || fetches || !env.reads_wait();
        if !self.ready.load(Acquire) {
            return self.before_init(env, hurried);
        }
        if self.is_retiring() {
            return self.retired(env);
        }
        if env.keeps_epochs() {
            self.look.swap(false, AcqRel); // what is said from here on is for the next look
            env.trim();
        }
        if !self.collected.load(Relaxed) && self.is_fenced(env) && hurried() {
            if Self::has_ended(env) {
                return Before::Read; // the kernel says so
            }
            self.nap_if_readable(env);
            env.ring_in(LOOK);
            return Before::Fail(EAGAIN);
        }
        let mut session = self.session();
        session.reap();
        if !self.collected.load(Relaxed) {
            if !self.await_fence(env) {
                return Before::Read; // the kernel says that it has gone
            }
            self.collected.store(true, Relaxed);
            env.inherit(&mut session);
            self.collect(env, &mut session);
        }
        if env.keeps_epochs() {
            env.look_at_epoch(&mut session);
        }
        let settled = session.phase() != Phase::Settling;
        let work = session.work(env.now());
        if matches!(work, Some(Work::Seal)) {
            env.seal(&mut session);
        }
        let settling = session.phase() == Phase::Settling;
        let kick = session.take_kick();
        // A checkpoint goes on when what has begun is answered, by whichever thread: the kernel may
        // know no file to wake a reader by, and what it is asked instead waits for the checkpoint.
        let quiescing = session.phase() == Phase::Quiescing;
        let starved = session.is_starved() || session.is_awaiting() || quiescing;
        // What was due could not be begun before this, and nobody else looks.
        let may_begin = !settled && !settling && env.keeps_epochs() && env.is_due();
        self.note_work(&session, false);
        let delivery = match &work {
            Some(Work::Deliver(message) | Work::DeliverWith(message, _)) => Some(&**message),
            _ => None,
        };
        // Whoever gives it to the daemon tells that it is begun.
        let begun = delivery.filter(|_| !fetches);
        let slot = begun.and_then(|message| env.begin(&session, message));
        let forwards = session.is_rolling_forward();
        drop(session);
        if let Some(message) = begun {
            let turn = env.turn(message);
            env.assign(turn, slot);
        }
        self.note_open(env, settling);
        if kick || settling && delivery.is_some() {
            self.wake(env, settling); // also to watch whether the daemon's work holds up what is left
        }
        if forwards && delivery.is_some() {
            env.forwarded();
        }
        match work {
            Some(Work::Deliver(message)) => Before::Deliver(message, InPlace::default()),
            Some(Work::DeliverWith(head, data)) => Before::Deliver(head, data),
            Some(Work::Answer(message)) => {
                self.answer(env, &message);
                Before::Again
            }
            Some(Work::Seal) => Before::Again,
            Some(Work::Retire) => self.retired(env),
            None if may_begin => {
                self.look_again();
                Before::Again
            }
            None if settling || starved => self.wait_a_little(env, settling, hurried()),
            None => Before::Read,
        }
    }

    /// INIT is not settled yet.
    fn before_init(&self, env: &impl Environment<M>, hurried: impl FnOnce() -> bool) -> Before {
        if let Some(init) = self.recorded_init(env) {
            return Before::Deliver(init, InPlace::default());
        }
        if self.attachment.generation == 0 || self.init_unique.load(Acquire) == 0 {
            return Before::Read;
        }
        if hurried() {
            self.nap_if_readable(env);
            return Before::Fail(EAGAIN); // the bell is rung when INIT is settled
        }
        // libfuse starts a second thread while the first still has INIT in hand. What that one
        // took from the kernel now would be missing when the first collects what was in flight.
        env.pause();
        Before::Again
    }

    fn retired(&self, env: &impl Environment<M>) -> Before {
        self.retire(env);
        Before::Fail(ENODEV)
    }

    /// Writes an answer that the daemon is not asked for.
    fn answer(&self, env: &impl Environment<M>, message: &[u8]) {
        let errno = env.write(message);
        let unique = get_u64(message, 8).unwrap_or(0);
        let mut session = self.session();
        if errno == ENOENT && !self.copies() {
            session.on_refused(unique);
        } else {
            // From a copy, a reply that the kernel has already is refused too.
            session.on_delivered(unique);
        }
        self.note_work(&session, true);
        drop(session);
        if !self.replied.load(Relaxed) && unique != 0 {
            self.note_reply(env, unique);
        }
    }

    /// While requests are being settled, or wait for a slot, nobody may sleep in the kernel for
    /// long: one of them may turn out to hold up the others, and a slot may become free unheard.
    fn wait_a_little(&self, env: &impl Environment<M>, settling: bool, hurried: bool) -> Before {
        let mut counted_on = false;
        if !hurried {
            let goes_on;
            (goes_on, counted_on) = self.wake.while_looking(|| env.doze(LOOK));
            // As read(2) says, if the handler is one without SA_RESTART: it may have asked the
            // daemon to end.
            if !goes_on {
                if counted_on {
                    self.wake(env, settling); // the daemon may not come back
                }
                return Before::Fail(EINTR);
            }
        }
        let seen = env.readiness();
        if !seen.is_something() || settling && seen.gone {
            // In the second case what was acknowledged is still being done again.
            if hurried && seen.is_something() {
                env.nap();
            }
            let mut session = self.session();
            session.tick(env.now());
            let still = settling == (session.phase() == Phase::Settling);
            drop(session);
            if hurried && still {
                env.ring_in(LOOK);
                return Before::Fail(EAGAIN);
            }
            return Before::Again;
        }
        // Another thread may take the message first, and this one sleep until the next.
        if counted_on { Before::Again } else { Before::Read }
    }

    /// Nothing can be taken now, though the device is readable, so that the bell is too: whoever
    /// waits with it would look again and again.
    pub fn nap_if_readable(&self, env: &impl Environment<M>) {
        if env.readiness().is_something() {
            env.nap();
        }
    }
}
