//! The control block: what shim and supervisor tell each other, one word at a time.
//!
//! Both sides read it at any instant and the other side may be dead or mad, so every item is
//! either a single word or bytes whose length is checked; nothing here is trusted further.

use crate::solo::Blame;
use belay_memory::Memory;
use belay_memory::words::{high, low, pair};

mod bits;
mod block;
mod checkpoints;
mod decisions;
mod ends;
mod faults;
mod kept;
mod losses;
mod words;
pub use bits::{Flags, Options};
pub use block::Control;
pub use checkpoints::{CheckpointSettings, FlushBy};
pub use decisions::Decision;
pub use ends::ending;
pub use kept::{Kept, KeptPath};
pub use losses::Loss;

use words::{
    W_BLAME, W_COUNTERS, W_CUT, W_FENCE, W_FLAGS, W_HELD, W_HELPER, W_INIT_REPLY, W_INIT_REQUEST,
    W_INIT_STATE, W_LEASE, W_MAGIC, W_MAX_WRITE, W_MOUNT_OPTIONS, W_MOUNTPOINT, W_NUDGES, W_PARKED,
    W_POISON_AFTER, W_TIMES, W_VERSION,
};

/// First word of every recorder.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"belayrec");
/// Layout version of the recorder.
pub const VERSION: u64 = 10;

/// How far the negotiation with the kernel (FUSE_INIT) has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitState {
    /// The kernel's INIT has not been seen.
    None,
    /// The request is recorded.
    Requested,
    /// The daemon's reply is recorded; it may or may not have reached the kernel.
    Replying,
    /// The kernel has the reply.
    Done,
}

/// Counters of a mount, all monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Requests handed to daemons, injected ones not counted.
    Requests,
    /// Requests reissued after a crash.
    Reissued,
    /// Requests whose outcome was found by asking the successor.
    Reconciled,
    /// Requests answered from the reply that the dead generation had recorded.
    Recorded,
    /// Requests that failed because of a crash.
    Failed,
    /// Nodes restored in successors.
    NodesRestored,
    /// Handles reopened in successors.
    HandlesRestored,
    /// Locks taken again in successors.
    LocksRestored,
    /// Directory streams continued in successors.
    StreamsRestored,
    /// Requests that belay put to a daemon by itself.
    Injected,
    /// Open files kept by a hidden rename.
    Hidden,
    /// Requests that failed because daemons died of them, one after another.
    Poisoned,
    /// Requests replayed from the op-log: answered before a crash, and not yet part of a
    /// checkpoint.
    RolledForward,
    /// How long daemons took for these, and for what had to be asked on the way, in nanoseconds.
    RolledForwardDaemon,
    /// Directories with another inode number in a successor that were known by what is in them.
    Renumbered,
}

/// Names of the counters, in their order, for status output.
pub const COUNTER_NAMES: [&str; 15] = [
    "requests",
    "reissued",
    "reconciled",
    "recorded",
    "failed",
    "nodes_restored",
    "handles_restored",
    "locks_restored",
    "streams_restored",
    "injected",
    "hidden",
    "poisoned",
    "rolled_forward",
    "rolled_forward_daemon_ns",
    "renumbered",
];

/// Instants of the current generation, CLOCK_MONOTONIC nanoseconds, 0 while not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Instant {
    /// The shim was loaded and holds the lease.
    Attached,
    /// The daemon read the device for the first time.
    FirstRead,
    /// INIT is settled.
    Ready,
    /// What was in flight at the crash is settled and new work is let in.
    Open,
    /// First reply to the kernel other than INIT's.
    FirstReply,
}

/// The process that may serve the device: one word, so that taking it is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which life of the daemon.
    pub generation: u32,
    /// Its process id; 0 while nobody has taken the lease.
    pub pid: u32,
}

impl Lease {
    fn word(self) -> u64 {
        pair(self.generation, self.pid)
    }
    fn from_word(word: u64) -> Self {
        Self { generation: high(word), pid: low(word) }
    }
}

impl<M: Memory> Control<'_, M> {
    /// Writes the header of a fresh recorder (all other words are zero).
    pub fn format(&self) {
        self.memory.store(W_VERSION, VERSION);
        self.memory.store(W_MAGIC, MAGIC);
    }

    /// Whether this is a recorder of this version.
    pub fn is_valid(&self) -> bool {
        self.memory.load(W_MAGIC) == MAGIC && self.memory.load(W_VERSION) == VERSION
    }

    /// Who may serve the device.
    pub fn lease(&self) -> Lease {
        Lease::from_word(self.memory.load(W_LEASE))
    }

    /// Takes or passes on the lease if it still is `from`.
    pub fn change_lease(&self, from: Lease, to: Lease) -> bool {
        self.memory.compare_exchange(W_LEASE, from.word(), to.word()).is_ok()
    }

    /// Whether all of these are set.
    pub fn has(&self, flags: Flags) -> bool {
        Flags::from_bits_retain(self.memory.load(W_FLAGS)).contains(flags)
    }

    /// Sets them.
    pub fn raise(&self, flags: Flags) {
        let bits = flags.bits();
        let mut old = self.memory.load(W_FLAGS);
        while old & bits != bits {
            match self.memory.compare_exchange(W_FLAGS, old, old | bits) {
                Ok(_) => return,
                Err(found) if found == old => return, // outside of the memory
                Err(found) => old = found,
            }
        }
    }

    /// Adds to a counter.
    #[inline]
    pub fn count(&self, counter: Counter, by: u64) {
        self.memory.add(W_COUNTERS + counter as usize, by);
    }

    /// Adds 1 to a counter that this process alone changes, one thread at a time: without the
    /// locked instruction that [`Control::count`] is.
    #[inline]
    pub fn count_alone(&self, counter: Counter) {
        let at = W_COUNTERS + counter as usize;
        self.memory.store(at, self.memory.load(at).wrapping_add(1));
    }

    /// A counter's value.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.memory.load(W_COUNTERS + counter as usize)
    }

    /// All counters with their names.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        COUNTER_NAMES.iter().enumerate().map(|(i, name)| (*name, self.memory.load(W_COUNTERS + i)))
    }

    /// Clears the instants, before a generation starts.
    pub fn clear_instants(&self) {
        for i in 0..8 {
            self.memory.store(W_TIMES + i, 0);
        }
    }

    /// Records that `instant` is reached at `nanoseconds`, unless it is recorded already.
    pub fn reach(&self, instant: Instant, nanoseconds: u64) {
        let _ = self.memory.compare_exchange(W_TIMES + instant as usize, 0, nanoseconds);
    }

    /// When `instant` was reached; 0 if it was not.
    #[inline]
    pub fn instant(&self, instant: Instant) -> u64 {
        self.memory.load(W_TIMES + instant as usize)
    }

    /// How far INIT has come.
    pub fn init_state(&self) -> InitState {
        match self.memory.load(W_INIT_STATE) {
            1 => InitState::Requested,
            2 => InitState::Replying,
            3 => InitState::Done,
            _ => InitState::None,
        }
    }

    /// Moves INIT on.
    pub fn set_init_state(&self, state: InitState) {
        self.memory.store(W_INIT_STATE, state as u64);
    }

    /// Records the kernel's INIT request, at most 248 bytes.
    pub fn set_init_request(&self, message: &[u8]) {
        self.put(W_INIT_REQUEST, 31, message);
    }

    /// The recorded INIT request.
    pub fn init_request(&self) -> Vec<u8> {
        self.take(W_INIT_REQUEST, 31)
    }

    /// Records the first daemon's reply to INIT, at most 248 bytes.
    pub fn set_init_reply(&self, message: &[u8]) {
        self.put(W_INIT_REPLY, 31, message);
    }

    /// The recorded reply to INIT.
    pub fn init_reply(&self) -> Vec<u8> {
        self.take(W_INIT_REPLY, 31)
    }

    /// Records where the daemon mounted and with which mount(2) data.
    pub fn set_mount(&self, mountpoint: &[u8], data: &[u8]) {
        self.put(W_MOUNTPOINT, 511, mountpoint);
        self.put(W_MOUNT_OPTIONS, 511, data);
    }

    /// The mountpoint as the daemon gave it to mount(2); empty before.
    pub fn mountpoint(&self) -> Vec<u8> {
        self.take(W_MOUNTPOINT, 511)
    }

    /// The data string of mount(2).
    pub fn mount_data(&self) -> Vec<u8> {
        self.take(W_MOUNT_OPTIONS, 511)
    }

    /// The generation whose predecessors can have no late effects any more: what they left behind
    /// (children, and through them connections) is gone. Set by the supervisor.
    pub fn fence(&self) -> u32 {
        low(self.memory.load(W_FENCE))
    }

    /// Declares that no generation before `generation` can do anything any more. What was declared
    /// of later ones stays: each generation is seen to by a thread of its own, and one that is slow
    /// comes last.
    pub fn raise_fence(&self, generation: u32) {
        let mut before = self.memory.load(W_FENCE);
        while low(before) < generation {
            match self.memory.compare_exchange(W_FENCE, before, u64::from(generation)) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// A dead daemon's connection has broken before all that went through it was answered. To be
    /// told before the fence opens.
    pub fn note_cut(&self) {
        self.memory.store(W_CUT, 1);
    }

    /// Whether one has, since this was last asked.
    pub fn take_cut(&self) -> bool {
        let cut = self.memory.load(W_CUT) != 0;
        if cut {
            self.memory.store(W_CUT, 0);
        }
        cut
    }

    /// The generation whose connections, if it has any, the supervisor holds, so that its death
    /// will not cut them off.
    pub fn held(&self) -> u32 {
        low(self.memory.load(W_HELD))
    }

    /// Declares that the connections of `generation` are held.
    pub fn set_held(&self, generation: u32) {
        self.memory.store(W_HELD, u64::from(generation));
    }

    /// The generation that died last, as far as the supervisor has told, and what its death says of
    /// a request that it had alone.
    pub fn blame(&self) -> (u32, Blame) {
        let word = self.memory.load(W_BLAME);
        (high(word), Blame::from_word(low(word)))
    }

    /// Declares what the death of `generation` says. By the supervisor, before the next one starts.
    pub fn set_blame(&self, generation: u32, blame: Blame) {
        self.memory.store(W_BLAME, pair(generation, blame as u32));
    }

    /// After how many crashes a request is poison, see [`crate::Solo::is_poison`].
    pub fn poison_after(&self) -> u32 {
        low(self.memory.load(W_POISON_AFTER))
    }

    /// Sets that number; 0: never.
    pub fn set_poison_after(&self, crashes: u32) {
        self.memory.store(W_POISON_AFTER, u64::from(crashes));
    }

    /// A daemon is to be woken, and the kernel knows no file by which that could be done: by the
    /// shim.
    pub fn ask_for_nudge(&self) {
        self.memory.add(W_NUDGES, 1);
    }

    /// How often that was asked for.
    pub fn nudges_asked(&self) -> u64 {
        self.memory.load(W_NUDGES)
    }

    /// How many requests, and errands of belay's own, wait in the shim for something other than the
    /// daemon.
    pub fn parked(&self) -> u64 {
        self.memory.load(W_PARKED)
    }

    /// Says how many there are.
    pub fn set_parked(&self, tasks: u64) {
        self.memory.store(W_PARKED, tasks);
    }

    /// The process that is, or becomes, fusermount for the held mount; 0 if none does.
    pub fn helper(&self) -> u32 {
        low(self.memory.load(W_HELPER))
    }

    /// Makes it `to` if it still is `from`.
    pub fn change_helper(&self, from: u32, to: u32) -> bool {
        self.memory.compare_exchange(W_HELPER, u64::from(from), u64::from(to)).is_ok()
    }

    /// The largest write that the kernel was promised; 0 before INIT is settled.
    pub fn max_write(&self) -> u64 {
        self.memory.load(W_MAX_WRITE)
    }

    /// Records the largest write, from INIT's reply.
    pub fn set_max_write(&self, bytes: u64) {
        self.memory.store(W_MAX_WRITE, bytes);
    }
}
