//! What holds for one life of the daemon, and how far that life is.

use super::caller::Caller;
use belay_recorder::control::Options;
use belay_wire::Dialect;

/// How far this generation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// What was in flight at the crash is reissued, one at a time; new work waits.
    Settling,
    /// Normal work.
    Open,
    /// A checkpoint: what had begun comes to its end; new work waits.
    Quiescing,
}

/// One life of the daemon.
#[derive(Debug)]
pub(crate) struct Life {
    generation: u32,
    options: Options,
    phase: Phase,
    dialect: Dialect,
    owner: Caller,
}

impl Life {
    /// The first life starts open, others start settling.
    pub(crate) fn new(generation: u32, options: Options) -> Self {
        Self {
            generation,
            options,
            phase: if generation == 0 { Phase::Open } else { Phase::Settling },
            dialect: Dialect::NEWEST,
            owner: Caller::default(),
        }
    }

    /// The number of this life, counted from 0.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The life whose ids the daemon understands: its own, or the first one's if it calls nodes and
    /// handles the same in all lives.
    #[inline]
    pub(crate) fn ids(&self) -> u32 {
        if self.keeps_records() { 0 } else { self.generation }
    }

    /// Whether the daemon keeps records of its own of what it has done, in which ids mean the same
    /// in all of its lives.
    #[inline]
    pub(crate) fn keeps_records(&self) -> bool {
        self.has(Options::RECORDS)
    }

    /// Whether all of these are chosen.
    #[inline]
    pub(crate) fn has(&self, options: Options) -> bool {
        self.options.contains(options)
    }

    /// Requests are copied from now on, as the kernel cannot send them again.
    pub(crate) fn keep_copies(&mut self) {
        self.options |= Options::NO_RESEND;
    }

    /// Whether nobody but the daemon changes what is behind the mount, so that a node's type is
    /// known for good.
    #[inline]
    pub(crate) fn owns_types(&self) -> bool {
        self.options.intersects(Options::TRANSACTION | Options::EPOCH | Options::RECORDS)
    }

    /// How far it is.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether work is normal.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether what was in flight at the crash is being settled.
    #[inline]
    pub(crate) fn is_settling(&self) -> bool {
        self.phase == Phase::Settling
    }

    /// Whether a checkpoint is being made.
    #[inline]
    pub(crate) fn is_quiescing(&self) -> bool {
        self.phase == Phase::Quiescing
    }

    /// It is that far now.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// What kernel and daemon speak.
    #[inline]
    pub(crate) fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Kernel and daemon have agreed on this.
    pub(crate) fn speak(&mut self, dialect: Dialect) {
        self.dialect = dialect;
    }

    /// The daemon's own user.
    pub(crate) fn owner(&self) -> Caller {
        self.owner
    }

    /// The daemon belongs to this user.
    pub(crate) fn set_owner(&mut self, owner: Caller) {
        self.owner = owner;
    }
}
