//! What tasks are about: each flow's own state. The scheduler knows nothing of it.

use crate::flows::checkpoint::state::Waits;
use crate::flows::hide::state::Hide;
use crate::flows::reconcile::state::{Presence, Probe, Resent};
use crate::flows::restore::state::Looked;
use belay_recorder::{Handle, Lock, Node, Slot, Solo};
use belay_wire::{Opcode, Request, get_u64};

/// A parked request or an errand.
pub(crate) type Task = crate::parts::scheduler::Task<Flow>;

/// What a task is for, and how far it is.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all tasks are requests, which are not to cost an allocation more"
)]
pub(crate) enum Flow {
    /// A request of the kernel.
    Request(Parked),
    /// Taking a lock again.
    Relock(Errand<Lock>),
    /// Removing a hidden file.
    RemoveHidden(Errand<Node>),
    /// Putting back a mode that a dead generation had widened to open a file again.
    Narrow(Errand<Handle>),
    /// Replaying what was acknowledged since the last checkpoint.
    RollForward,
    /// Having the daemon write all that it holds, for a checkpoint.
    Flush(Errand<()>),
    /// Having it store the file that is open by the handle with this key, which makes room in the
    /// op-log.
    Store(Errand<u64>),
    /// Having it store the file with this key, which nobody has open.
    CloseBehind(Errand<u64>),
}

/// A request of the kernel that is parked.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    /// In the kernel's terms.
    message: Vec<u8>,
    /// Where it is on record, or what was claimed for it.
    pub(crate) slot: Option<Slot>,
    /// It came back after a crash, and is not settled.
    pub(crate) resent: Option<Resent>,
    /// The deaths of daemons that had it alone.
    pub(crate) solo: Solo,
    /// It fails with this error.
    pub(crate) failed: Option<i32>,
    /// That is what the daemon says, or has to say without belay too.
    pub(crate) answered: bool,
    pub(crate) hide: Hide,
    pub(crate) probe: Probe,
    /// The attribute that is to be removed.
    pub(crate) presence: Presence,
    /// The answer, as the daemon's own records have it.
    pub(crate) record: Option<Vec<u8>>,
    pub(crate) looked: Looked,
    pub(crate) waits: Waits,
}

/// Something that belay does by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand<T> {
    pub(crate) about: T,
    /// What it needs cannot be had.
    pub(crate) failed: bool,
    pub(crate) done: bool,
}

impl<T> Errand<T> {
    /// Not begun.
    pub(crate) fn new(about: T) -> Self {
        Self { about, failed: false, done: false }
    }
}

impl Parked {
    /// Nothing is known of the request yet.
    pub(crate) fn new(message: Vec<u8>, slot: Option<Slot>) -> Self {
        Self {
            message,
            slot,
            resent: None,
            solo: Solo::default(),
            failed: None,
            answered: false,
            hide: Hide::default(),
            probe: Probe::default(),
            presence: Presence::default(),
            record: None,
            looked: Looked::default(),
            waits: Waits::default(),
        }
    }

    /// The request, in the kernel's terms.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Its number, as the kernel gave it last.
    pub(crate) fn unique(&self) -> u64 {
        get_u64(&self.message, 8).unwrap_or(0)
    }

    /// What kind of request it is.
    pub(crate) fn opcode(&self) -> Opcode {
        Request::parse(&self.message).map_or(Opcode(0), |request| request.opcode())
    }
}

impl Flow {
    /// A request of the kernel.
    pub(crate) fn of_request(message: Vec<u8>, slot: Option<Slot>) -> Self {
        Self::Request(Parked::new(message, slot))
    }

    /// The request, if it is one.
    pub(crate) fn request(&self) -> Option<&Parked> {
        match self {
            Self::Request(request) => Some(request),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn request_mut(&mut self) -> Option<&mut Parked> {
        match self {
            Self::Request(request) => Some(request),
            _ => None,
        }
    }

    /// The request's message; nothing if it is none.
    pub(crate) fn message(&self) -> &[u8] {
        self.request().map_or(&[], Parked::message)
    }

    /// The request's number; 0 if it is none.
    pub(crate) fn unique(&self) -> u64 {
        self.request().map_or(0, Parked::unique)
    }

    /// The request's kind; none if it is none.
    pub(crate) fn opcode(&self) -> Opcode {
        self.request().map_or(Opcode(0), Parked::opcode)
    }

    /// The daemon says by `errno` that what is needed cannot be had.
    pub(crate) fn refuse(&mut self, errno: i32) {
        match self {
            Self::Request(request) => {
                request.failed = Some(errno);
                request.answered = true;
            }
            Self::Relock(errand) => errand.failed = true,
            Self::RemoveHidden(errand) => errand.failed = true,
            Self::Narrow(errand) => errand.failed = true,
            Self::RollForward | Self::Flush(_) | Self::Store(_) | Self::CloseBehind(_) => {}
        }
    }

    /// An errand is done, or goes on. A request is over when it is answered.
    pub(crate) fn set_done(&mut self, done: bool) {
        match self {
            Self::Relock(errand) => errand.done = done,
            Self::RemoveHidden(errand) => errand.done = done,
            Self::Narrow(errand) => errand.done = done,
            Self::Flush(errand) => errand.done = done,
            Self::Store(errand) | Self::CloseBehind(errand) => errand.done = done,
            Self::Request(_) | Self::RollForward => {}
        }
    }

    /// Whether an errand is done.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Relock(errand) => errand.done,
            Self::RemoveHidden(errand) => errand.done,
            Self::Narrow(errand) => errand.done,
            Self::Flush(errand) => errand.done,
            Self::Store(errand) | Self::CloseBehind(errand) => errand.done,
            Self::Request(_) | Self::RollForward => false,
        }
    }
}
