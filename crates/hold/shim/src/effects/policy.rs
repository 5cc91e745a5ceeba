//! Which policy there is, with all that it keeps of its own.

use super::epoch::state::Epochs;
use super::transaction::state::Transactions;
use belay_memory::Memory;
use belay_recorder::Control;
use belay_recorder::control::options;

/// What is done about effects.
#[derive(Debug)]
pub(crate) enum Policy {
    /// Nothing: the session asks the successor.
    None,
    /// The same, but it is looked for whether something of a request leaves the daemon.
    Watched,
    /// Calls are logged.
    Journal,
    /// Image writes are collected until the request is answered.
    Transaction(Transactions),
    /// Image writes are collected until a checkpoint.
    Epoch(Box<Epochs>),
}

impl Policy {
    /// That of the recorder's [`options`].
    pub(crate) fn new<M: Memory>(bits: u64, control: &Control<'_, M>) -> Self {
        match bits {
            _ if bits & options::EPOCH != 0 => Self::Epoch(Box::new(Epochs::new(control))),
            _ if bits & options::TRANSACTION != 0 => Self::Transaction(Transactions::default()),
            _ if bits & options::JOURNAL != 0 => Self::Journal,
            _ if bits & (options::WATCHED | options::LOSES_UNCONNECTED) != 0 => Self::Watched,
            _ => Self::None,
        }
    }

    /// Whether calls leave a trace in the recorder.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        !matches!(self, Self::None | Self::Watched)
    }

    /// Whether calls are logged.
    #[inline]
    pub(crate) fn is_journal(&self) -> bool {
        matches!(self, Self::Journal)
    }

    /// Whether image writes are collected until the request is answered.
    #[inline]
    pub(crate) fn is_transaction(&self) -> bool {
        matches!(self, Self::Transaction(_))
    }

    /// Whether image writes are collected until a checkpoint.
    #[inline]
    pub(crate) fn is_epoch(&self) -> bool {
        matches!(self, Self::Epoch(_))
    }
}
