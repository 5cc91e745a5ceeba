//! What is to be replayed.

use crate::log::Oplog;
use crate::pages::{InPlace, Piece};
use crate::record::{Corrupt, Record};
use belay_memory::Memory;

/// How far issuing the log again has come. It holds no reference to the log, which must not be
/// appended to meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    next: usize,
    most: usize,
}

/// A request to be replayed. `D` is how its data come: as a copy, or where they are ([`InPlace`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue<D = Vec<u8>> {
    /// Its number in the log, for reports. Those of writes that were replaced do not come.
    pub number: usize,
    /// The request, and what was answered.
    pub record: Record,
    /// Its data. Of a WRITE, these and not what its body says are to be written: there may be less
    /// of it (the rest was written later, too), or more (earlier writes beside it were joined to
    /// it). Of any other request, what was staged.
    pub data: Vec<Run<D>>,
}

/// Data without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<D = Vec<u8>> {
    /// Offset in the file.
    pub offset: u64,
    /// What is to be there.
    pub bytes: D,
}

impl Replay {
    /// From the first record on, with runs of up to `most` bytes: what the daemon takes in one
    /// WRITE.
    pub fn new(most: usize) -> Self {
        Self { next: 0, most: most.max(1) }
    }

    /// The same from a record's number on.
    pub fn starting_at(number: usize, most: usize) -> Self {
        Self { next: number, ..Self::new(most) }
    }

    /// The number of the record that comes next.
    pub fn at(&self) -> usize {
        self.next
    }

    /// The next request, with a copy of its data. `None` at the end.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn next<M: Memory>(&mut self, log: &Oplog<M>) -> Result<Option<Issue>, Corrupt> {
        let Some(Issue { number, record, data }) = self.next_in_place(log)? else {
            return Ok(None);
        };
        let copied =
            |Run { offset, bytes }: Run<InPlace>| Run { offset, bytes: bytes.to_vec(log.memory()) };
        Ok(Some(Issue { number, record, data: data.into_iter().map(copied).collect() }))
    }

    /// The same, with its data where they are: they are most of what a recovery copies.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn next_in_place<M: Memory>(
        &mut self,
        log: &Oplog<M>,
    ) -> Result<Option<Issue<InPlace>>, Corrupt> {
        while let Some(known) = log.index.records.get(self.next) {
            let number = self.next;
            self.next += 1;
            if known.is_live() {
                let record = log.record(number)?;
                let pieces = known.pieces.iter().filter(|piece| piece.length > 0);
                return Ok(Some(Issue { number, record, data: self.runs(log.arena(), pieces) }));
            }
        }
        Ok(None)
    }

    fn runs<'a>(&self, arena: usize, pieces: impl Iterator<Item = &'a Piece>) -> Vec<Run<InPlace>> {
        let mut runs: Vec<Run<InPlace>> = Vec::new();
        for piece in pieces {
            let mut done = 0;
            while done < usize::from(piece.length) {
                let offset = piece.offset().saturating_add(done as u64);
                let room = |Run { offset: start, bytes }: &Run<InPlace>| {
                    let follows = start.checked_add(bytes.len() as u64) == Some(offset);
                    if follows { self.most - bytes.len() } else { 0 }
                };
                let mut room = runs.last().map_or(0, room);
                if room == 0 {
                    runs.push(Run { offset, bytes: InPlace::default() });
                    room = self.most;
                }
                let now = (usize::from(piece.length) - done).min(room);
                if let Some(run) = runs.last_mut() {
                    run.bytes.push(arena, piece, done, now);
                }
                done += now;
            }
        }
        runs
    }
}

impl<M: Memory> Oplog<M> {
    /// All that is to be replayed, see [`Replay`].
    pub fn replay(&self, most: usize) -> impl Iterator<Item = Result<Issue, Corrupt>> {
        let mut replay = Replay::new(most);
        std::iter::from_fn(move || replay.next(self).transpose())
    }
}
