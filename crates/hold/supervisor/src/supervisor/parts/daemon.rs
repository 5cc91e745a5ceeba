//! The process of the daemon: what was started, or what holds the lease; and what it is about to
//! die of.

use crate::detection::Detection;
use crate::process::Watched;

/// The daemon's process, as far as this supervisor knows it.
#[derive(Debug, Default)]
enum Known {
    /// There is none.
    #[default]
    None,
    /// It was started for this generation, and is not known to hold the lease.
    Started(Watched),
    /// It holds the lease.
    Holds(Watched),
}

/// That, and why it is about to die.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    known: Known,
    /// Why it is about to die, and when that was caused.
    cause: Option<(Detection, u64)>,
}

impl Daemon {
    /// The process, be it one that does not serve yet.
    pub fn process(&self) -> Option<&Watched> {
        match &self.known {
            Known::None => None,
            Known::Started(process) | Known::Holds(process) => Some(process),
        }
    }

    /// The process, if it holds the lease.
    pub fn holder(&self) -> Option<&Watched> {
        match &self.known {
            Known::Holds(process) => Some(process),
            Known::None | Known::Started(_) => None,
        }
    }

    /// The process, if it is not known to hold the lease.
    pub fn started(&self) -> Option<&Watched> {
        match &self.known {
            Known::Started(process) => Some(process),
            Known::None | Known::Holds(_) => None,
        }
    }

    /// This process was started.
    pub fn is_started(&mut self, process: Watched) {
        self.known = Known::Started(process);
    }

    /// This process holds the lease.
    pub fn is_held_by(&mut self, process: Watched) {
        self.known = Known::Holds(process);
    }

    /// There is none any more.
    pub fn is_gone(&mut self) {
        self.known = Known::None;
    }

    /// What was started holds the lease.
    pub fn takes_lease(&mut self) {
        self.known = match std::mem::take(&mut self.known) {
            Known::Started(process) => Known::Holds(process),
            other => other,
        };
    }

    /// It is about to die of this, which was done at that time.
    pub fn is_to_die(&mut self, of: Detection, at: u64) {
        self.cause = Some((of, at));
    }

    /// What it is about to die of, and since when.
    pub fn cause(&self) -> Option<&(Detection, u64)> {
        self.cause.as_ref()
    }

    /// The same, which is forgotten with that: it is over, or another daemon is there.
    pub fn take_cause(&mut self) -> Option<(Detection, u64)> {
        self.cause.take()
    }
}
