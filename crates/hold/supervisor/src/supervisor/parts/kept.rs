//! What is written down for the next supervisor, and the statistics that are only counted on the
//! way.

use crate::blackout::{Blackouts, Summary};
use crate::ledger::{Book, Ledger};
use rustix::fd::OwnedFd;

/// The ledger.
#[derive(Debug)]
pub(crate) struct Kept {
    ledger: Ledger,
    blackouts: Blackouts,
}

impl Kept {
    /// The ledger in `file`, and what an earlier supervisor has written there.
    pub fn open(file: OwnedFd) -> (Self, Option<Book>) {
        let (ledger, book) = Ledger::open(file);
        let blackouts = book.as_ref().map(|book| book.tally.blackouts());
        let blackouts = blackouts.unwrap_or_else(|| Blackouts::from_pairs(&[], 0));
        (Self { ledger, blackouts }, book)
    }

    /// Writes the book down. A failure is told and survived: it costs statistics, and only if the
    /// supervisor dies too.
    pub fn write(&mut self, book: &Book) {
        if let Err(error) = self.ledger.write(book) {
            tracing::warn!("{error}");
        }
    }

    /// A blackout of so many microseconds is over. The book is told of all of them now, and not
    /// when it is written: that is also while applications wait.
    pub fn count_blackout(&mut self, book: &mut Book, us: u64) {
        self.blackouts.record(us);
        book.tally.blackout(us, &self.blackouts);
    }

    /// The blackouts so far.
    pub fn blackouts(&self) -> Summary {
        self.blackouts.summary()
    }
}
