//! The layers below, as the processes above them see them, and what is wrong with what they are
//! asked for.

use crate::disk::SimDisk;
use crate::memory::SimMemory;
use belay_cache::Shared;
use belay_cache::index::Index;
use belay_logical::Logical;
use belay_object::{Attributes, Credit, ObjectId, Operation, Room};

/// The layers below, as a process asks them: a dead one asks for nothing.
pub(crate) struct Asked<'a, 'd> {
    lower: &'a mut Logical<&'d SimDisk>,
    by: SimMemory,
    /// The log whose checkpoint is taken, and how many pairs new files may take besides what was
    /// paid for.
    compared: Option<(Shared<SimMemory>, u64)>,
    wrong: Option<String>,
    taken: u64,
    paid: u64,
}

impl<'a, 'd> Asked<'a, 'd> {
    /// By the process with that view of the memory.
    pub(crate) fn new(
        lower: &'a mut Logical<&'d SimDisk>,
        by: SimMemory,
        compared: Option<(Shared<SimMemory>, u64)>,
    ) -> Self {
        Self { lower, by, compared, wrong: None, taken: 0, paid: 0 }
    }

    /// How many blocks the stores took at most, and how many were paid for.
    ///
    /// # Errors
    /// If something was brought for which there was no room, or which took more than was said.
    pub(crate) fn seen(&mut self) -> Result<(u64, u64), String> {
        match self.wrong.take() {
            Some(wrong) => Err(wrong),
            None => Ok((self.taken, self.paid)),
        }
    }

    /// Compares what the stores took since the last checkpoint with what transactions up to that
    /// one have paid for.
    fn compare(&mut self, upto: u64) {
        let Some((shared, slack)) = &self.compared else { return };
        let mut index = Index::of(shared);
        if index.catch_up(shared, upto).is_err() || index.next() != upto {
            self.wrong = Some("the log is not what was brought".to_owned());
            return;
        }
        let owed = index.owed();
        // New files may take that besides.
        let makes = index.objects().any(|(_, changed)| changed.made.is_some());
        let most = owed.and(Credit::pairs(if makes { *slack } else { 0 }));
        for store in self.lower.stores() {
            let (singles, pairs) = store.taken();
            let taken = Credit::singles(singles).and(Credit::pairs(pairs));
            if !taken.fits(most) {
                self.wrong = Some(format!("{taken:?} was taken, not {owed:?}"));
            }
            self.taken = self.taken.max(taken.blocks);
        }
        self.paid = owed.blocks;
    }

    fn lives(&self) -> Result<(), belay_logical::Error> {
        match self.by.is_dead() {
            true => Err(belay_logical::Error::NoVolume("who asks is dead".into())),
            false => Ok(()),
        }
    }
}

impl belay_object::Lower for Asked<'_, '_> {
    type Error = belay_logical::Error;

    fn epoch(&mut self) -> Result<u64, Self::Error> {
        belay_object::Lower::epoch(self.lower)
    }

    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Self::Error> {
        self.lives()?;
        belay_object::Lower::attributes(self.lower, object)
    }

    fn is_damaged(why: &Self::Error) -> bool {
        <Logical<&SimDisk> as belay_object::Lower>::is_damaged(why)
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Self::Error> {
        self.lives()?;
        self.lower.read(object, page, out)
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Self::Error> {
        self.lives()?;
        let done = self.lower.apply(operation);
        if matches!(done, Err(belay_logical::Error::NoSpace)) {
            self.wrong = Some(format!("there is no room for {operation:.80?}"));
        }
        done
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64, Self::Error> {
        self.lives()?;
        self.compare(upto);
        belay_object::Lower::checkpoint(self.lower, upto)
    }

    fn upto(&mut self) -> Result<u64, Self::Error> {
        belay_object::Lower::upto(self.lower)
    }

    fn room(&mut self) -> Result<Room, Self::Error> {
        self.lower.room()
    }

    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Self::Error> {
        self.lives()?;
        self.lower.append_intent(bytes)
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Self::Error> {
        self.lower.intents()
    }
}
