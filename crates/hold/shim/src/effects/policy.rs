//! Which policy there is, with all that it keeps of its own.

use super::epoch::state::Epochs;
use super::transaction::state::Transactions;
use belay_memory::Memory;
use belay_recorder::Control;
use belay_recorder::control::Options;

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
    /// The one that is chosen.
    pub(crate) fn new<M: Memory>(options: Options, control: &Control<'_, M>) -> Self {
        match options {
            _ if options.contains(Options::EPOCH) => Self::Epoch(Box::new(Epochs::new(control))),
            _ if options.contains(Options::TRANSACTION) => {
                Self::Transaction(Transactions::default())
            }
            _ if options.contains(Options::JOURNAL) => Self::Journal,
            _ if options.intersects(Options::WATCHED | Options::LOSES_UNCONNECTED) => Self::Watched,
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
