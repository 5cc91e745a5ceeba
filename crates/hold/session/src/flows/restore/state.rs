//! What was looked up for a request, and what belay asks to bring something back.

use crate::parts::caller::Asker;
use belay_recorder::{Handle, Lock, Node};

/// What was looked up for a request before it goes to the daemon.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    /// Which of its names: a bit each.
    pub(crate) names: u8,
    /// The name that it is to take away is not there.
    pub(crate) absent: bool,
    /// Key of a node that is looked up before its request goes to the daemon once more.
    pub(crate) first: Option<u64>,
}

/// What belay asks to bring something back.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// LOOKUP that brings a node back under one of its names.
    RestoreNode { node: Node, parent: Node, name: Vec<u8> },
    /// LOOKUP of a name that the daemon has not been asked for, with the node that it had and is
    /// not known.
    Meet { parent: Node, name: Vec<u8>, child: Option<Node> },
    /// GETATTR of the root, before it is opened.
    MeetRoot,
    /// LOOKUP on the way to a file below a directory that may be another.
    Vouch { node: Node },
    /// OPEN or OPENDIR that brings a handle back.
    Reopen { handle: Handle },
    /// GETATTR before a reopen that the file's mode forbids.
    ReadMode { handle: Handle, errno: i32 },
    /// SETATTR that lets the reopen through.
    WidenMode { handle: Handle, mode: u32 },
    /// SETATTR that puts the mode back.
    NarrowMode { handle: Handle },
    /// The same, where a dead generation had widened it.
    NarrowLeft { handle: Handle },
    /// SETLK that takes a lost lock again.
    Relock { lock: Lock },
}

impl Question {
    /// In whose name it is asked.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::ReadMode { .. }
            | Self::WidenMode { .. }
            | Self::NarrowMode { .. }
            | Self::NarrowLeft { .. } => Asker::RootFirst,
            _ => Asker::Opener,
        }
    }

    /// The handle that it is about, if one.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Reopen { handle }
            | Self::ReadMode { handle, .. }
            | Self::WidenMode { handle, .. }
            | Self::NarrowMode { handle }
            | Self::NarrowLeft { handle } => Some(*handle),
            _ => None,
        }
    }
}
