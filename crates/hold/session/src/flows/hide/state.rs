//! How far hiding a file is, and what belay asks for it.

use crate::parts::caller::Asker;
use belay_recorder::Node;

/// How far hiding is, for a request that needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hide {
    /// Not begun.
    #[default]
    None,
    /// The file has its hidden name, the request is done with that.
    Renamed,
    /// The file has its hidden name, the request can go on.
    Kept,
    /// LINK is refused, or does not keep the file's node: rename the target away instead.
    NoLink,
    /// The target was renamed away, though its name may still be there.
    Away,
    /// The request has failed with this errno (negative), and the file is to have its name back.
    Back(i32),
    /// The same, and its hidden name is to go.
    Drop(i32),
    /// The same, and all is as before: it can be answered.
    Undone(i32),
    /// It cannot be hidden: the request goes on and the file's handles will not outlive a crash.
    GaveUp,
}

impl Hide {
    /// The hidden name is gone again, which was the last that had to be undone.
    pub(crate) fn dropped(&mut self) {
        if let Self::Drop(error) = *self {
            *self = Self::Undone(error);
        }
    }

    /// Whether what was done is being undone.
    pub(crate) fn is_undone(self) -> bool {
        matches!(self, Self::Back(_) | Self::Drop(_) | Self::Undone(_))
    }
}

/// What belay asks to hide a file, and to undo that.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// RENAME of an open file to a hidden name, instead of its UNLINK.
    HideByRename { node: Node },
    /// LINK of an open file to a hidden name, before a rename over it.
    HideByLink { node: Node },
    /// RENAME of an open file to a hidden name, before a rename over it, where LINK is refused.
    HideTarget { node: Node },
    /// UNLINK of the name that such a RENAME left, because both names are links of one file.
    DropTarget,
    /// RENAME of a hidden file out of a directory that is being removed.
    MoveHidden { node: Node, from: Node, to: Node },
    /// UNLINK of a hidden file at its last release.
    RemoveHidden { node: Node },
    /// RENAME of a hidden file back to its name, after the rename over it failed.
    Unhide { node: Node },
}

impl Question {
    /// In whose name it is asked.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::RemoveHidden { node } => Asker::Remover(*node),
            _ => Asker::Opener,
        }
    }

    /// The file whose names the daemon is to change, where they are on record before that is so.
    pub(crate) fn moves(&self) -> Option<Node> {
        match self {
            Self::HideByRename { node }
            | Self::HideByLink { node }
            | Self::HideTarget { node }
            | Self::MoveHidden { node, .. }
            | Self::Unhide { node } => Some(*node),
            Self::DropTarget | Self::RemoveHidden { .. } => None,
        }
    }
}
