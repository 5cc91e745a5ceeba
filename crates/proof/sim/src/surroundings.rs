//! What the host stands on in the simulation: a kernel, a disk and memory that are data, and a
//! clock that may end the daemon at each call.

use super::life::Outside;
use super::memory::{Died, Words};
use belay_host::{Device, EffectHooks, Fault, Process, Readiness};
use belay_recorder::control::Options;
use belay_recorder::{Blame, Slot};
use belay_session::Session;
use belay_wire::errno::EAGAIN;
use belay_wire::{Opcode, get_u64};
use std::cell::Cell;

/// A fault of a host, done here on purpose: what a simulation is worth is whether it finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Nobody who sleeps in a read is woken for work of belay's own.
    LostWakeUp,
    /// What is read from the device goes to the daemon past the session.
    PassedBy,
    /// So does the head of a long WRITE whose data stay in a pipe.
    PassedHead,
    /// A read that a signal has ended keeps the slot that it has claimed.
    NotGivenBack,
    /// A reply is written twice.
    DoubleAnswer,
    /// Nothing that was in flight at the crash is collected: the device is never said to be
    /// readable.
    NotCollected,
}

/// For one call of the host's.
pub struct Surroundings<'a> {
    out: &'a Outside,
    /// A checkpoint is due.
    due: &'a Cell<bool>,
    /// The last epoch that the session knows to be durable.
    durable: &'a Cell<u64>,
    /// The daemon has not written all that it was asked to do.
    dirty: bool,
    slept: Cell<bool>,
}

impl<'a> Surroundings<'a> {
    pub fn new(out: &'a Outside, due: &'a Cell<bool>, durable: &'a Cell<u64>, dirty: bool) -> Self {
        Self { out, due, durable, dirty, slept: Cell::new(false) }
    }

    /// Whether the thread has slept in this call.
    pub fn has_slept(&self) -> bool {
        self.slept.get()
    }

    /// A message of the kernel's.
    fn take(&self) -> Result<Vec<u8>, i32> {
        self.out.clock.tick();
        let message = self.out.kernel.borrow_mut().read().ok_or(EAGAIN)?;
        *self.out.in_hand.borrow_mut() = Some(message.clone());
        Ok(message)
    }
}

impl Device for Surroundings<'_> {
    type Buffer = Vec<u8>;

    fn buffer(&self, len: usize) -> Vec<u8> {
        vec![0; len]
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, i32> {
        let message = self.take()?;
        buffer[..message.len()].copy_from_slice(&message);
        self.out.clock.tick();
        Ok(message.len())
    }

    fn read_into_recorder(&self, at: usize, max: usize) -> Result<usize, i32> {
        let message = self.take()?;
        assert!(message.len() <= max, "a message of {} bytes for {max}", message.len());
        self.out.memory.fill(at, &message);
        self.out.clock.tick();
        Ok(message.len())
    }

    fn write(&self, message: &[u8]) -> i32 {
        self.out.clock.tick();
        let is_notice = get_u64(message, 8) == Some(0);
        if self.out.sabotage == Some(Sabotage::LostWakeUp) && is_notice {
            return 0;
        }
        let errno = self.out.kernel.borrow_mut().write(message);
        if self.out.sabotage == Some(Sabotage::DoubleAnswer) && !is_notice {
            self.out.kernel.borrow_mut().write(message);
        }
        self.out.clock.tick();
        errno
    }

    fn readiness(&self) -> Readiness {
        self.out.in_hand.take();
        let readable = self.out.sabotage != Some(Sabotage::NotCollected)
            && self.out.kernel.borrow().is_readable();
        Readiness { readable, gone: false }
    }
}

impl Process for Surroundings<'_> {
    fn now(&self) -> u64 {
        self.out.time.get()
    }

    fn reads_wait(&self) -> bool {
        true
    }

    fn doze(&self, _ns: i64) -> bool {
        self.slept.set(true);
        !self.out.has_signal(10)
    }

    fn pause(&self) {
        panic!("one thread waits for another here, of which there is one at a time");
    }

    fn fault(&self, fault: &Fault<'_>) -> ! {
        panic!("a sound daemon: {}", fault.rule);
    }

    fn unrecordable(&self) -> ! {
        std::panic::resume_unwind(Box::new(Died(Blame::Unknown)));
    }
}

impl EffectHooks<Words> for Surroundings<'_> {
    type Turn = ();

    fn turn(&self, _message: &[u8]) {}

    fn begin(&self, _session: &Session<Words>, _message: &[u8]) -> Option<Slot> {
        self.out.clock.tick();
        None
    }

    fn assign(&self, (): (), _slot: Option<Slot>) {}

    fn leave(&self, (): ()) {}

    fn replied(&self, _unique: u64, _failed: bool) -> Option<i32> {
        None
    }

    fn decided(&self, _unique: u64) {
        self.out.clock.tick();
    }

    fn inherit(&self, _session: &mut Session<Words>) {}

    fn keeps_epochs(&self) -> bool {
        self.out.options.contains(Options::EPOCH)
    }

    fn arriving(&self, session: &mut Session<Words>, _opcode: Opcode) {
        session.set_time(self.out.time.get());
    }

    fn look_at_epoch(&self, session: &mut Session<Words>) {
        let out = self.out;
        session.set_time(out.time.get());
        if self.durable.replace(out.durable.get()) != out.durable.get() {
            session.set_durable(out.durable.get());
        }
        if session.is_rolling_forward() && out.can_seal() {
            session.want_cut();
        }
        let due = self.due.get() || session.wants_checkpoint();
        if due && out.can_seal() && session.begin_checkpoint(out.time.get()) {
            self.due.set(false);
        }
    }

    fn seal(&self, session: &mut Session<Words>) {
        assert!(!self.dirty, "the epoch ends, and not all is written");
        if session.prepare_cut() {
            self.out.end_epoch();
            self.out.clock.tick();
            session.sealed(self.out.epoch.get());
        }
    }

    fn is_due(&self) -> bool {
        self.due.get()
    }
}
