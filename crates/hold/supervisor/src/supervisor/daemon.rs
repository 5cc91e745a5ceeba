//! The process of the daemon: what was started, or what holds the lease.

use crate::process::Watched;

/// The daemon's process, as far as this supervisor knows it.
#[derive(Debug, Default)]
pub(super) enum Daemon {
    /// There is none.
    #[default]
    None,
    /// It was started for this generation, and is not known to hold the lease.
    Started(Watched),
    /// It holds the lease.
    Holds(Watched),
}

impl Daemon {
    /// The process, be it one that does not serve yet.
    pub fn process(&self) -> Option<&Watched> {
        match self {
            Self::None => None,
            Self::Started(process) | Self::Holds(process) => Some(process),
        }
    }

    /// The process, if it holds the lease.
    pub fn holder(&self) -> Option<&Watched> {
        match self {
            Self::Holds(process) => Some(process),
            Self::None | Self::Started(_) => None,
        }
    }

    /// The process, if it is not known to hold the lease.
    pub fn started(&self) -> Option<&Watched> {
        match self {
            Self::Started(process) => Some(process),
            Self::None | Self::Holds(_) => None,
        }
    }

    /// What was started holds the lease.
    pub fn takes_lease(&mut self) {
        *self = match std::mem::take(self) {
            Self::Started(process) => Self::Holds(process),
            other => other,
        };
    }
}
