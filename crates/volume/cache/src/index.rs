//! What all transactions since the last checkpoint come to ([`crate::changes`]): one process's own
//! view of the log.
//!
//! Each part knows of which transaction it is, so that it leaves the index when that transaction is
//! durable: from then on the stores say the same.

use crate::changes::{Changed, Changes, MOST_PUNCHED, Source, punched_by};
use crate::log::Slot;
use crate::pool::Version;
use crate::record::Record;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Credit, ObjectId, Operation, Undecodable};
use std::collections::VecDeque;

/// One process's view of the log.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// The transaction that is read next.
    next: u64,
    /// Up to which one everything is durable, and not in here any more.
    durable: u64,
    changes: Changes,
    /// How much room all of them can take at most.
    owed: Credit,
    /// Pages that all of them make zeros of.
    punched: u64,
    /// How many cells and frames all of them take.
    taken: Taken,
    /// What each of them takes, up to the one before `next`.
    used: VecDeque<Used>,
}

/// What a transaction takes.
#[derive(Clone, Debug, Default)]
struct Used {
    /// The cells that its record is in.
    cells: Vec<u32>,
    /// The frames with pages that it has written.
    pages: Vec<Version>,
    /// How much room it can take at most.
    cost: Credit,
    /// Pages that it makes zeros of.
    punched: u64,
}

/// Numbers of cells and of frames.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    cells: usize,
    frames: usize,
}

impl Taken {
    fn and(self, used: &Used) -> Self {
        Self { cells: self.cells + used.cells.len(), frames: self.frames + used.pages.len() }
    }
}

impl Index {
    /// Of a log, from what is not durable on.
    pub fn of<M: Memory>(shared: &Shared<M>) -> Self {
        let durable = shared.durable();
        Self { next: durable, durable, ..Self::default() }
    }

    /// The transaction that is read next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Up to which transaction nothing is in here, as it is durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// What has happened to an object; `None` for nothing.
    pub fn changed(&self, object: ObjectId) -> Option<&Changed> {
        self.changes.of(object)
    }

    /// How much room the transactions in here can take at most.
    pub fn owed(&self) -> Credit {
        self.owed
    }

    /// Whether a transaction that punches so many pages can be taken in besides what is in here.
    pub(crate) fn has_room_for(&self, punched: u64) -> bool {
        self.punched.saturating_add(punched) <= MOST_PUNCHED
    }

    /// What has happened to all objects.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// All objects to which something has happened.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Changed)> {
        self.changes.objects()
    }

    /// All cells that the transactions in here take.
    pub fn cells(&self) -> impl Iterator<Item = u32> {
        self.used.iter().flat_map(|used| &used.cells).copied()
    }

    /// All frames that they take.
    pub fn frames(&self) -> impl Iterator<Item = u32> {
        self.used.iter().flat_map(|used| &used.pages).map(|page| page.place)
    }

    /// Reads what was published, at most up to but not including `end`.
    ///
    /// # Errors
    /// If something in the log makes no sense.
    pub fn catch_up<M: Memory>(&mut self, shared: &Shared<M>, end: u64) -> Result<(), Undecodable> {
        self.take_in(shared, end, |_, _| {})
    }

    /// The same, with the number of each, and all that was published of it.
    ///
    /// # Errors
    /// As for [`Index::catch_up`].
    pub fn take_in<M: Memory>(
        &mut self,
        shared: &Shared<M>,
        end: u64,
        mut each: impl FnMut(u64, &Record),
    ) -> Result<(), Undecodable> {
        while self.next < end.min(shared.end()) {
            // Whoever is slower than the checkpoints skips what they have.
            let durable = shared.durable();
            if self.next < durable {
                *self = Self { next: durable, durable, ..Self::default() };
            }
            let Slot::Published(frame) = shared.slot(self.next) else {
                if shared.durable() > self.next {
                    // Its slot was given to a later one since. The log goes on behind what is
                    // durable.
                    continue;
                }
                break;
            };
            let read = shared.read_record(frame);
            // Frames are given back when they are durable. So it was there as a whole if it is not
            // durable now.
            if shared.durable() > self.next {
                continue;
            }
            let (record, cells) = read?;
            let punched = punched_by(&record.transaction);
            if !self.has_room_for(punched) {
                return Err(Undecodable::new("more pages are punched than there can be at once"));
            }
            let mut pages = Vec::new();
            for operation in record.transaction.operations() {
                let operation = operation?;
                if matches!(operation, Operation::Pages { .. }) {
                    pages.extend(Version::written(&operation)?);
                }
                self.changes.apply(self.next, &operation)?;
            }
            let used = Used { cells, pages, cost: record.cost, punched };
            self.is_possible(shared, &used)?;
            each(self.next, &record);
            self.owed = self.owed.and(record.cost);
            self.punched += punched;
            self.taken = self.taken.and(&used);
            self.used.push_back(used);
            self.next += 1;
        }
        Ok(())
    }

    /// Whether a transaction can take that besides what is in here: no place is taken by two that
    /// are not durable.
    fn is_possible<M: Memory>(&self, shared: &Shared<M>, more: &Used) -> Result<(), Undecodable> {
        let fits = |taken: Taken| {
            let taken = taken.and(more);
            let capacity = (shared.layout.cells as usize, shared.layout.capacity.frames as usize);
            taken.cells <= capacity.0 && taken.frames <= capacity.1
        };
        if fits(self.taken) {
            return Ok(());
        }
        // What is durable by now may have been given back, and taken again.
        let old = self.older_than(shared.durable());
        match fits(self.used.range(old..).fold(Taken::default(), Taken::and)) {
            true => Ok(()),
            false => Err(Undecodable::new("transactions have more frames than there are")),
        }
    }

    /// How many of the transactions in here come before that one.
    fn older_than(&self, number: u64) -> usize {
        let left = usize::try_from(self.next.saturating_sub(number)).unwrap_or(usize::MAX);
        self.used.len().saturating_sub(left)
    }

    /// Forgets what is durable; calls `each` with all objects, and what has happened to them,
    /// before.
    pub fn forget(&mut self, durable: u64, each: impl FnMut(ObjectId, &Changed)) {
        if durable <= self.durable {
            return;
        }
        self.durable = durable;
        self.used.drain(..self.older_than(durable));
        self.owed = self.used.iter().fold(Credit::default(), |all, one| all.and(one.cost));
        self.punched = self.used.iter().map(|one| one.punched).sum();
        self.taken = self.used.iter().fold(Taken::default(), Taken::and);
        self.changes.forget(durable, each);
    }
}
