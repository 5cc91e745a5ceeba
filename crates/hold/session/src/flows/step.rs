//! What a task needs next.

use crate::flows::injection::Injection;

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

impl Step {
    /// The daemon is asked something, which a flow says.
    pub(crate) fn ask(message: Vec<u8>, question: impl Into<Injection>) -> Self {
        Self::Inject(message, question.into())
    }
}
