//! What is to be issued again.

use crate::log::Oplog;
use crate::pages::Piece;
use crate::record::{Record, Spoilt};
use belay_recorder::Memory;

/// How far issuing the log again has come. It holds no reference to the log, which must not be appended to meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    next: usize,
    most: usize,
    head: usize,
}

/// A request to be issued again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Its number in the log, for reports. Those of writes that were replaced do not come.
    pub number: usize,
    /// The request, and what was answered.
    pub record: Record,
    /// Its data. Of a WRITE, these and not what its body says are to be written: there may be less of it
    /// (the rest was written later, too), or more (earlier writes beside it were joined to it). Of any other request, what
    /// was staged.
    pub data: Vec<Run>,
}

/// Data without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Place in the file.
    pub offset: u64,
    /// What is to be there; in front of it the room that was asked for ([`Replay::with_head`]).
    pub bytes: Vec<u8>,
}

impl Replay {
    /// From the first record on, with runs of up to `most` bytes: what the daemon takes in one WRITE.
    pub fn new(most: usize) -> Self {
        Self { next: 0, most: most.max(1), head: 0 }
    }

    /// The same with room for `head` bytes in front of each run's data, zeros: a message can be made of it without copying
    /// them once more.
    #[must_use]
    pub fn with_head(self, head: usize) -> Self {
        Self { head, ..self }
    }

    /// The next request. `None` at the end.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn next<M: Memory>(&mut self, log: &Oplog<M>) -> Result<Option<Issue>, Spoilt> {
        while let Some(known) = log.index.records.get(self.next) {
            let number = self.next;
            self.next += 1;
            if known.is_live() {
                let record = log.record(number)?;
                let data = self.runs(log, known.pieces.iter().filter(|piece| piece.length > 0));
                return Ok(Some(Issue { number, record, data }));
            }
        }
        Ok(None)
    }

    fn runs<'a, M: Memory>(
        &self,
        log: &Oplog<M>,
        pieces: impl Iterator<Item = &'a Piece>,
    ) -> Vec<Run> {
        let pieces = pieces.collect::<Vec<_>>();
        let mut left: usize = pieces.iter().map(|piece| usize::from(piece.length)).sum();
        let mut runs: Vec<Run> = Vec::new();
        for piece in pieces {
            let mut offset = piece.offset();
            let mut done = 0;
            while done < usize::from(piece.length) {
                let room = match runs.last() {
                    Some(Run { offset: start, bytes }) => {
                        let have = bytes.len() - self.head;
                        let follows = start.checked_add(have as u64) == Some(offset);
                        if follows { self.most - have } else { 0 }
                    }
                    None => 0,
                };
                if room == 0 {
                    // Once as large as it can become: what a recovery takes is mostly what is copied.
                    let mut bytes = Vec::with_capacity(self.head + left.min(self.most));
                    bytes.resize(self.head, 0);
                    runs.push(Run { offset, bytes });
                }
                let room = if room == 0 { self.most } else { room };
                let now = (usize::from(piece.length) - done).min(room);
                if let Some(Run { bytes, .. }) = runs.last_mut() {
                    let have = bytes.len();
                    bytes.resize(have + now, 0);
                    log.data(piece, done, bytes.get_mut(have..).unwrap_or_default());
                }
                offset = offset.saturating_add(now as u64);
                done += now;
                left -= now;
            }
        }
        runs
    }
}

impl<M: Memory> Oplog<M> {
    /// All that is to be issued again, see [`Replay`].
    pub fn replay(&self, most: usize) -> impl Iterator<Item = Result<Issue, Spoilt>> {
        let mut replay = Replay::new(most);
        std::iter::from_fn(move || replay.next(self).transpose())
    }
}
