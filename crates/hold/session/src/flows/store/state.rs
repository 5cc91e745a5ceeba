//! What the daemon is asked so that it stores a file.

use belay_recorder::Handle;

/// What belay asks to have a file stored.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// FLUSH of a file, which makes room in the op-log; its number.
    Store { handle: Handle, unique: u64 },
    /// OPEN of a file whose length was set by no handle.
    OpenBehind { file: u64 },
    /// RELEASE of that, by which the daemon stores it; its number.
    CloseBehind { file: u64, unique: u64 },
}

impl Question {
    /// The kernel's handle that it is about, if one.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match self {
            Self::Store { handle, .. } => Some(*handle),
            Self::OpenBehind { .. } | Self::CloseBehind { .. } => None,
        }
    }
}
