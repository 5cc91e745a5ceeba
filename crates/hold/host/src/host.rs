//! What a host keeps.

use crate::environment::{Environment, Process};
use crate::wake::Wake;
use belay_memory::Memory;
use belay_recorder::control::Instant;
use belay_recorder::{Control, Layout, Slot};
use belay_session::{Direct, Phase, Session};
use belay_wire::Unique;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool};

/// What a host is attached to.
#[derive(Clone, Copy, Debug)]
pub struct Attachment {
    /// What is where in the recorder.
    pub layout: Layout,
    /// Which life of the daemon this is.
    pub generation: u32,
}

/// A session, and what is known of it without its lock.
#[derive(Debug)]
pub struct Host<M: Memory> {
    /// Its tables are changed by whichever thread has a message in hand. Uncontended it costs two
    /// atomic operations; held for well under a microsecond.
    session: Mutex<Session<M>>,
    pub(crate) memory: M,
    pub(crate) attachment: Attachment,
    /// There may be work besides reading the device. Written under the session's lock.
    pub(crate) pending: AtomicBool,
    /// There may be something to look at that the session does not know of.
    pub(crate) look: AtomicBool,
    /// Requests whose replies need no session.
    pub(crate) direct: Direct,
    /// A slot was freed without the session, see [`Session::reap`].
    pub(crate) freed: AtomicBool,
    /// `unique` of the INIT that the daemon is answering, 0 if none.
    pub(crate) init_unique: AtomicU64,
    /// INIT is settled.
    pub(crate) ready: AtomicBool,
    /// Requests in flight at the crash have been collected from the kernel.
    pub(crate) collected: AtomicBool,
    /// Since when it is waited for that the dead generation can have no effect any more, 0 if it
    /// was not.
    pub(crate) fenced_since: AtomicU64,
    /// The first reply to the kernel has been noted.
    pub(crate) replied: AtomicBool,
    /// The end of the settling has been noted.
    opened: AtomicBool,
    /// The daemon is told that the mount has gone, so that it writes what it holds, and ends.
    retiring: AtomicBool,
    /// Requests are copied before the daemon gets them.
    pub(crate) copies: AtomicBool,
    /// Which threads need not be woken.
    pub(crate) wake: Wake,
}

impl<M: Memory> Host<M> {
    /// A host for `session`, whose recorder is `memory`.
    pub fn new(session: Session<M>, memory: M, attachment: Attachment) -> Self {
        let first = attachment.generation == 0;
        Self {
            copies: AtomicBool::new(session.keeps_copies()),
            session: Mutex::new(session),
            memory,
            attachment,
            pending: AtomicBool::new(!first),
            look: AtomicBool::new(false),
            direct: Direct::default(),
            freed: AtomicBool::new(false),
            init_unique: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            collected: AtomicBool::new(first),
            fenced_since: AtomicU64::new(0),
            replied: AtomicBool::new(first),
            opened: AtomicBool::new(first),
            retiring: AtomicBool::new(false),
            wake: Wake::default(),
        }
    }

    /// The session, for as long as the guard lives.
    #[inline]
    pub fn session(&self) -> MutexGuard<'_, Session<M>> {
        // Who panics with it ends the process (the shim), or ends with all of it (the simulation):
        // what is half done is seen by nobody.
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recorder.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// What is where in it.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.attachment.layout
    }

    /// Which life of the daemon this is.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.attachment.generation
    }

    /// The recorder's control block.
    #[inline]
    pub fn control(&self) -> Control<'_, M> {
        Control::new(&self.memory, self.attachment.layout)
    }

    /// Requests whose replies need no session.
    #[inline]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// Whether INIT is settled.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Whether requests are copied before the daemon gets them.
    #[inline]
    pub fn copies(&self) -> bool {
        self.copies.load(Relaxed)
    }

    /// Whether there may be work besides reading the device.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.ready.load(Acquire) || self.pending.load(Acquire)
    }

    /// There may be something to look at that the session does not know of.
    pub fn look_again(&self) {
        self.look.store(true, Release);
    }

    /// Whether the daemon is told that the mount has gone.
    #[inline]
    pub fn is_retiring(&self) -> bool {
        self.retiring.load(Acquire)
    }

    /// The daemon writes what it holds at its end only: each of its threads that asks for more is
    /// told that the mount has gone, as if it was unmounted. What it writes on its way is kept
    /// apart; the supervisor ends the epoch when it has ended as it should. What waits for an
    /// answer is taken up by the successor.
    #[cold]
    pub(crate) fn retire(&self, env: &impl Environment<M>) {
        if !self.retiring.swap(true, Release) {
            self.control().set_retiring(self.attachment.generation);
            env.tell();
        }
        // The next thread may be asleep in the kernel's read.
        self.wake_all(env);
    }

    /// A slot to copy the next request into, if requests are copied. Waits until there is one.
    #[inline]
    pub fn claim(&self, env: &impl Process) -> Option<Slot> {
        // Also before INIT is answered: what a thread is given that sleeps in its read meanwhile is
        // the first request, say.
        if self.copies() { self.claim_one(env) } else { None }
    }

    #[cold]
    fn claim_one(&self, env: &impl Process) -> Option<Slot> {
        loop {
            let slot = self.session().claim_slot();
            if slot.is_some() {
                return slot;
            }
            // Every slot is in use: another thread's reply frees one.
            env.pause();
        }
    }

    /// The claimed slot is not used after all.
    #[inline]
    pub fn unclaim(&self, slot: Option<Slot>) {
        if slot.is_some() {
            self.session().unclaim(slot);
        }
    }

    /// The session, told of the slots that were freed without it.
    #[inline]
    pub(crate) fn reaped(&self) -> MutexGuard<'_, Session<M>> {
        let mut session = self.session();
        if self.freed.load(Relaxed) {
            // What is freed from here on may be missed, until a further one is.
            self.freed.store(false, Relaxed);
            session.reap();
        }
        session
    }

    /// Writes down whether there is work. The caller has the session's lock.
    #[inline]
    pub(crate) fn note_work(&self, session: &Session<M>, settles: bool) {
        let more = settles && session.phase() == Phase::Settling || !session.is_quiet();
        self.pending.store(more, Release);
    }

    /// Records that an instant is reached now, and tells the supervisor.
    pub fn reach(&self, env: &impl Process, instant: Instant) {
        self.control().reach(instant, env.now());
        env.tell();
    }

    /// What the kernel gets as an answer to `unique` has been written.
    #[cold]
    pub(crate) fn note_reply(&self, env: &impl Process, unique: u64) {
        // Replies to injected requests do not count: no application waits for them.
        if !Unique::new(unique).is_own() && !self.replied.swap(true, Relaxed) {
            self.reach(env, Instant::FirstReply);
        }
    }

    pub(crate) fn note_open(&self, env: &impl Process, settling: bool) {
        if !settling && !self.opened.load(Relaxed) && !self.opened.swap(true, Relaxed) {
            self.reach(env, Instant::Open);
        }
    }
}
