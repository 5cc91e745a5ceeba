//! A parked request or an errand, and what is known of it.

use crate::decision::{Finding, Progress};
use crate::flows::hide::Hide;
use crate::flows::injection::Injection;
use crate::flows::reconcile::created::Widen;
use belay_recorder::{Handle, Lock, Node, Slot, Solo};
use belay_wire::{EntryOut, Opcode, OpenOut, Request, get_u64};

/// What a task is for.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// A request of the kernel, in the kernel's terms.
    Request(Vec<u8>),
    /// Taking a lock again.
    Relock(Lock),
    /// Removing a hidden file.
    RemoveHidden(Node),
    /// Putting back a mode that a dead generation had widened to open a file again.
    Narrow(Handle),
    /// Issuing again what was acknowledged since the last checkpoint.
    RollForward,
    /// Having the daemon write all that it holds, for a checkpoint.
    Flush,
    /// Having it store the file that is open by the handle with this key, which makes room in the op-log.
    Store(u64),
    /// Having it store the file with this key, which nobody has open.
    CloseBehind(u64),
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    Ready,
    /// The reply to an injected request.
    Injected,
    /// The daemon's reply to the task's own request, which others wait for.
    Reply(u64),
}

/// What is known of a request that came back after a crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resent {
    pub(crate) progress: Progress,
    pub(crate) finding: Finding,
}

/// What is known of the attribute that a request is to remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing.
    #[default]
    Unknown,
    /// It is there, or may be.
    There,
    /// It is not there.
    Absent,
    /// It is not there, and this is what the daemon says to its removal.
    Answered(i32),
}

/// A parked request or an errand.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) job: Job,
    pub(crate) wait: Wait,
    pub(crate) slot: Option<Slot>,
    /// It belongs to what was in flight at the crash.
    pub(crate) old: bool,
    pub(crate) resent: Option<Resent>,
    /// The deaths of daemons that had its request alone.
    pub(crate) solo: Solo,
    pub(crate) failed: Option<i32>,
    /// That is what the daemon says, or has to say without belay too.
    pub(crate) answered: bool,
    pub(crate) done: bool,
    pub(crate) since: u64,
    pub(crate) hide: Hide,
    pub(crate) probed: Option<EntryOut>,
    pub(crate) probe_target: bool,
    pub(crate) opened: Option<OpenOut>,
    /// The attribute that is to be removed.
    pub(crate) presence: Presence,
    /// Which of its names were looked up for it: a bit each.
    pub(crate) met: u8,
    /// The name that it is to take away is not there.
    pub(crate) absent: bool,
    /// Key of a node that is looked up before its request goes to the daemon once more.
    pub(crate) first: Option<u64>,
    /// How far a created file whose mode forbids opening it is being opened.
    pub(crate) widen: Widen,
    /// It waits for a checkpoint, or for a file to be stored, which makes room in the op-log.
    pub(crate) throttled: bool,
    /// The epoch that must be safe before it is answered.
    pub(crate) awaits: Option<u64>,
}

/// What a task needs next.
pub(crate) enum Step {
    /// A request of belay's own.
    Inject(Vec<u8>, Injection),
    /// Its request can go to the daemon.
    Deliver,
    /// Its request is answered.
    Answer(Vec<u8>),
    /// Something that another task is doing.
    Blocked,
    /// That other task must go first.
    After(u64),
    /// Nothing: an errand is done.
    Done,
}

impl Task {
    pub(crate) fn new(id: u64, job: Job, slot: Option<Slot>) -> Self {
        Self {
            id,
            job,
            wait: Wait::Ready,
            slot,
            old: false,
            resent: None,
            solo: Solo::default(),
            failed: None,
            answered: false,
            done: false,
            since: 0,
            hide: Hide::None,
            probed: None,
            probe_target: false,
            opened: None,
            presence: Presence::default(),
            met: 0,
            absent: false,
            first: None,
            widen: Widen::No,
            throttled: false,
            awaits: None,
        }
    }

    pub(crate) fn message(&self) -> &[u8] {
        match &self.job {
            Job::Request(message) => message,
            _ => &[],
        }
    }

    pub(crate) fn unique(&self) -> u64 {
        get_u64(self.message(), 8).unwrap_or(0)
    }

    pub(crate) fn opcode(&self) -> Opcode {
        Request::parse(self.message()).map_or(Opcode(0), |request| request.opcode())
    }
}
