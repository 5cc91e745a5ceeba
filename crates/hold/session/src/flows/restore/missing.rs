//! What is missing for a request.

use crate::flows::step::Step;
use belay_recorder::{Handle, Node};

/// Why a request cannot be passed on yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// This generation does not know the node.
    Node(Node),
    /// This generation has not opened the handle.
    Handle(Handle),
    /// The kernel has let go of it.
    Gone,
    /// The handle can never be opened again.
    Lost,
}

/// What is to be done about something missing.
pub(crate) enum Missed {
    /// This.
    Step(Step),
    /// Nothing can be done: belay has lost it.
    Failed(i32),
    /// Nothing can be done: it has no name any more, by which daemons could find it.
    Nameless,
}
