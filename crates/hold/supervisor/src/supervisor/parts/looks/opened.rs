//! Looks at what a daemon has open of which nobody has said what it works on.

use crate::text::OsText;
use std::sync::mpsc::{Receiver, TryRecvError};

/// How many looks there are at the most: a mount on which somebody has always something open is let
/// be.
const MOST: u32 = 60;

/// What was seen: nothing, if it could not be looked.
pub(crate) type Seen = Option<Option<(OsText, String)>>;

/// Looks at what the daemon has open.
#[derive(Debug, Default)]
pub(crate) struct OpenedLooks {
    done: u32,
    /// One that is away will say so here.
    away: Option<Receiver<Seen>>,
}

impl OpenedLooks {
    /// A daemon serves.
    pub fn begin(&mut self) {
        *self = Self::default();
    }

    /// It is looked once more. Gives whether there may be another look.
    pub fn count(&mut self) -> bool {
        self.done += 1;
        self.done < MOST
    }

    /// Whether somebody is away who looks.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Somebody is sent, who will tell by this.
    pub fn sent(&mut self, told: Receiver<Seen>) {
        self.away = Some(told);
    }

    /// What was seen, if who looked is back.
    pub fn take(&mut self) -> Seen {
        let seen = match self.away.as_ref()?.try_recv() {
            Ok(seen) => seen,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => None,
        };
        self.away = None;
        seen
    }
}
