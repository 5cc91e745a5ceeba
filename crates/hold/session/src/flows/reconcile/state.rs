//! What is known of a request that was in flight at a crash, and what a successor is asked about
//! it.

use crate::decision::{Finding, Progress};
use crate::parts::caller::Asker;
use belay_wire::{EntryOut, OpenOut};

/// What is known of a request that came back after a crash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resent {
    pub(crate) progress: Progress,
    pub(crate) finding: Finding,
}

/// How far opening a created file is whose own mode forbids it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Widen {
    /// It opened, or was not tried yet.
    #[default]
    No,
    /// OPEN was refused.
    Needed,
    /// The mode is wider than it was.
    Done,
    /// The mode is back.
    Undone,
}

/// What a successor has shown of what a request names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probe {
    /// What it has made.
    pub(crate) entry: Option<EntryOut>,
    /// Where a rename goes is looked at next.
    pub(crate) target: bool,
    /// The file that it has made is open.
    pub(crate) opened: Option<OpenOut>,
    pub(crate) widen: Widen,
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

/// What a successor is asked.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// LOOKUP of the name that a request is about.
    ProbeName,
    /// LOOKUP of the name that a rename goes to.
    ProbeTarget,
    /// OPEN of a file whose CREATE had already happened.
    OpenCreated,
    /// SETATTR that lets that OPEN through.
    WidenCreated,
    /// SETATTR that takes that back.
    NarrowCreated,
    /// GETATTR for the size of a file that was appended to.
    ProbeSize,
    /// SETATTR that cuts off a partial append.
    CutTail,
    /// GETXATTR of the attribute that a request is about.
    ProbeXattr,
    /// GETXATTR of the attribute that is about to be removed.
    ProbePresence,
    /// REMOVEXATTR of an attribute that is not there: what the daemon says to that.
    RemoveAbsent,
    /// GETXATTR of what the daemon's own records say of a request.
    ProbeRecord,
}

impl Question {
    /// In whose name it is asked.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::RemoveAbsent => Asker::RequesterOnly,
            Self::WidenCreated | Self::NarrowCreated => Asker::RootFirst,
            _ => Asker::Opener,
        }
    }
}
