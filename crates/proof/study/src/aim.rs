//! Who is to be crashed, and during what.

use belay_faults::{Scope, Target};
use belay_wire::Opcode;

use crate::operation::Operation;

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The daemon.
    Daemon,
    /// Who holds it.
    Supervisor,
    /// Who holds it, and the daemon in the same moment.
    Both,
}

/// During what somebody is to be crashed while an operation is carried out.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The request, or whatever else it is.
    pub target: Target,
    /// Who serves it, and dies.
    pub victim: Victim,
}

impl Aim {
    /// At the daemon's work on the request that an operation is about.
    #[must_use]
    pub fn of(op: &Operation) -> Self {
        Self { target: op.target(), victim: Victim::Daemon }
    }

    /// The same, followed by the functions of the preloaded library with this file name.
    #[must_use]
    pub fn by_functions(op: &Operation, library: &str) -> Self {
        let scope = Scope::Library { name: library.to_owned(), injected: false };
        Self { target: op.target().within(scope), victim: Victim::Daemon }
    }

    /// At one of the requests that this library makes by itself.
    #[must_use]
    pub fn injected(opcode: Opcode, library: &str) -> Self {
        let scope = Scope::Library { name: library.to_owned(), injected: true };
        Self { target: Target::any(&[opcode]).within(scope), victim: Victim::Daemon }
    }

    /// At the commit of a checkpoint by who holds the daemon.
    #[must_use]
    pub fn commit(victim: Victim) -> Self {
        Self { target: Target::default(), victim }
    }

    /// Whether it may come without being seen.
    pub(crate) fn may_miss(&self) -> bool {
        matches!(self.target.scope, Scope::Library { .. })
    }

    /// Whether what is served comes after the application has gone on.
    pub(crate) fn comes_late(&self) -> bool {
        self.target.opcodes.contains(&Opcode::RELEASE)
    }
}
