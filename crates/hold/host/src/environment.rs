//! What a host stands on.

use belay_memory::Memory;
use belay_recorder::Slot;
use belay_session::Session;
use belay_wire::{Opcode, Rule};

/// What there is to be had of the device without waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A message can be read.
    pub readable: bool,
    /// The mount has gone.
    pub gone: bool,
}

impl Readiness {
    /// Whether a read would not wait, be it that it fails.
    pub fn is_something(self) -> bool {
        self.readable || self.gone
    }
}

/// The kernel's end of the mount, as belay itself uses it.
pub trait Device {
    /// A buffer for messages.
    type Buffer: AsMut<[u8]>;

    /// One with room for so many bytes, which the kernel can fill without a fault.
    fn buffer(&self, len: usize) -> Self::Buffer;

    /// Reads a message, without waiting if there is one.
    ///
    /// # Errors
    /// The errno.
    fn read(&self, buffer: &mut [u8]) -> Result<usize, i32>;

    /// Reads a message into the recorder, at most `max` bytes from byte `at` on.
    ///
    /// # Errors
    /// The errno.
    fn read_into_recorder(&self, at: usize, max: usize) -> Result<usize, i32>;

    /// Writes a message of belay's own. Gives 0, or the errno.
    fn write(&self, message: &[u8]) -> i32;

    /// What can be had of it now.
    fn readiness(&self) -> Readiness;
}

/// A reply that no sound daemon gives.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'a> {
    /// What is wrong with it.
    pub rule: Rule,
    /// Its header.
    pub head: &'a [u8],
    /// How many bytes it has with its header.
    pub total: usize,
    /// What is behind its header.
    pub body: &'a [u8],
}

/// The process that the host is in, and how its threads wait. Where nobody is told, and nothing
/// waits, the defaults do.
pub trait Process {
    /// CLOCK_MONOTONIC in nanoseconds.
    fn now(&self) -> u64;

    /// Has the supervisor look at the recorder. Does not wait.
    fn tell(&self) {}

    /// This process is the one that serves the mount from now on: the daemon may have gone into the
    /// background since it started.
    fn serve_from_here(&self) {}

    /// INIT is settled.
    fn ready(&self) {}

    /// Whether a read of the device waits until there is something.
    fn reads_wait(&self) -> bool;

    /// Sleeps for so many nanoseconds, as if it was in a read of the device. `false` if a signal
    /// has ended it for which a read would fail with EINTR.
    fn doze(&self, ns: i64) -> bool;

    /// Sleeps for about a millisecond, whatever comes.
    fn nap(&self) {}

    /// Lets another thread get on that is about to finish something.
    fn pause(&self);

    /// Whether the daemon waits for the device in another way than by reading it.
    fn is_polled(&self) -> bool {
        false
    }

    /// Whether some thread may sleep in a read of the device all the same. Whoever asks has said
    /// before that there is work.
    fn has_readers(&self) -> bool {
        true
    }

    /// There is, or may be, something for those that wait so.
    fn ring(&self) {}

    /// The same in so many nanoseconds.
    fn ring_in(&self, _ns: i64) {}

    /// The daemon is about to answer a request. May not come back.
    fn answering(&self) {}

    /// Ends the daemon, as its reply is to reach nobody.
    fn fault(&self, fault: &Fault<'_>) -> !;

    /// Ends the daemon before it answers, as the op-log has no room for what it has done.
    fn unrecordable(&self) -> !;
}

/// What becomes of effects, and of the epoch that they are in. Each is called by the thread that it
/// is about.
pub trait EffectHooks<M: Memory> {
    /// A request's place among those that wait for their turn.
    type Turn: Copy;

    /// The thread has `message` for the daemon, and holds no lock of belay's. Gives its turn, once
    /// it has come.
    fn turn(&self, message: &[u8]) -> Self::Turn;

    /// It is about to give it to the daemon. Gives the slot that it is on record in, if that
    /// matters.
    fn begin(&self, session: &Session<M>, message: &[u8]) -> Option<Slot>;

    /// The request that has this turn is on record in `slot`.
    fn assign(&self, turn: Self::Turn, slot: Option<Slot>);

    /// It is not given to the daemon after all.
    fn leave(&self, turn: Self::Turn);

    /// The daemon has answered `unique`, by an error or not. `Some` is the error that its caller
    /// gets instead.
    fn replied(&self, unique: u64, failed: bool) -> Option<i32>;

    /// The reply to `unique` is decided, and on record if it must be. Nobody has it yet.
    fn decided(&self, unique: u64);

    /// The dead generation can do nothing any more, and what it had in hand is about to be
    /// collected.
    fn inherit(&self, session: &mut Session<M>);

    /// Whether what is acknowledged is kept until a checkpoint. If not, what follows is not asked.
    fn keeps_epochs(&self) -> bool {
        false
    }

    /// A request of this kind has come, and is about to be given to the session.
    fn arriving(&self, _session: &mut Session<M>, _opcode: Opcode) {}

    /// It was, and goes to the daemon.
    fn arrived(&self, _session: &Session<M>, _opcode: Opcode) {}

    /// Memory that is not needed any more is given back, if somebody wants that. The thread holds
    /// no lock.
    fn trim(&self) {}

    /// A thread looks for work: is there a checkpoint to be begun, or one that is done?
    fn look_at_epoch(&self, _session: &mut Session<M>) {}

    /// All that the daemon holds is written: the epoch ends.
    fn seal(&self, _session: &mut Session<M>) {}

    /// A reply has come, and what it acknowledges is in the op-log.
    fn logged(&self, _session: &Session<M>) {}

    /// The daemon is given a request of the roll-forward.
    fn forwarded(&self) {}

    /// It has answered a request of belay's own.
    fn answered(&self) {}

    /// Whether a checkpoint is to be begun.
    fn is_due(&self) -> bool {
        false
    }
}

/// All of it.
pub trait Environment<M: Memory>: Device + Process + EffectHooks<M> {}

impl<M: Memory, E: Device + Process + EffectHooks<M>> Environment<M> for E {}
