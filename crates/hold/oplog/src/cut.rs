//! A checkpoint in the middle of a roll-forward: what was replayed by then is part of it, and the
//! rest is the log of the next epoch.
//!
//! The rest is written to the other half of the memory, as the log of the epoch to come, and a word
//! of its own says so. The store that ends the epoch (the overlay's) makes that the log: whoever
//! opens the log of an epoch that [`crate::head`] does not know yet looks at that word. So
//! checkpoint and log change in the same instant here, too.
//!
//! A cut is a state that the files once had: a write before it whose data a later one has taken
//! over, behind it, is not there to be done again as it was.

use crate::head::Head;
use crate::log::Oplog;
use crate::record::{Corrupt, Draft, Facts, NameChange, Record};
use belay_memory::Memory;
use std::borrow::Cow;

/// Of each half: up to where records were written anew, so that it is not known any more what they
/// had taken over.
pub(crate) const FLOORS: usize = 257;
/// The head of the log of the next epoch, while a cut is made; else 0.
pub(crate) const NEXT: usize = 259;

/// What is to become the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    half: usize,
    used: usize,
    heads: usize,
}

impl<M: Memory> Oplog<M> {
    /// Of each number of a record, whether the log can be cut in front of it. As it was opened.
    pub fn cuts(&self) -> Vec<bool> {
        let floor = self.memory.load(self.layout.at + FLOORS + self.half);
        let floor = Head::parse(floor, self.epoch)
            .filter(|head| head.epoch == self.epoch && head.half == self.half)
            .map_or(0, |head| head.used);
        let mut reach = usize::MAX;
        let mut cuts: Vec<bool> = (0..self.count())
            .rev()
            .map(|number| {
                let known = self.index.records.get(number);
                let (at, own) = known.map_or((0, 0), |known| (known.at, known.reach as usize));
                reach = reach.min(own);
                number > 0 && reach >= number && at >= floor
            })
            .collect();
        cuts.reverse();
        cuts
    }

    /// How many records in front only say what names mean: what a cut has left of the ones before
    /// it.
    pub fn heads(&self) -> usize {
        let is_head =
            |number: &usize| self.record(*number).is_ok_and(|record| record.facts.opcode == 0);
        (0..self.count()).take_while(is_head).count()
    }

    /// Records in all, dead ones included.
    pub fn length(&self) -> usize {
        self.count()
    }

    /// Prepares the log of the next epoch: what `names` mean by now (directory, name, node), and
    /// the records from `number` on. `false` if there is no room. To be followed by the store that
    /// ends the epoch and [`Oplog::cut`], or by [`Oplog::cancel_cut`]; nothing is staged or
    /// appended in between.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn prepare_cut(
        &mut self,
        number: usize,
        names: impl Iterator<Item = (u64, Vec<u8>, u64)>,
    ) -> Result<bool, Corrupt> {
        self.cancel_cut();
        let mut cut = Cut { half: 1 - self.half, used: 0, heads: 0 };
        let facts = Facts::default();
        for (parent, name, key) in names {
            let change = NameChange { parent, name: Cow::Owned(name), before: key, after: key };
            let draft = Draft {
                facts: &facts,
                body: &[],
                names: std::slice::from_ref(&change),
                pieces: &[],
            };
            if !self.write_next(&mut cut, &draft) {
                return Ok(false);
            }
            cut.heads += 1;
        }
        for number in number..self.count() {
            // As they are, also those that are dead: what they took over decides where the log can
            // be cut again.
            let Record { facts, body, names, pieces, .. } = &self.record(number)?;
            if !self.write_next(&mut cut, &Draft { facts, body, names, pieces }) {
                return Ok(false);
            }
        }
        let head = Head { epoch: self.epoch + 1, half: cut.half, used: cut.used };
        self.memory.store(self.layout.at + NEXT, head.word());
        self.next = Some(cut);
        Ok(true)
    }

    fn write_next(&mut self, cut: &mut Cut, draft: &Draft<'_>) -> bool {
        if cut.used + draft.words() > self.layout.capacity.half() {
            return false;
        }
        let seed = crate::record::Seed { epoch: self.epoch + 1, ..self.seed(cut.half, cut.used) };
        draft.encode(&seed, &mut self.scratch);
        self.memory.store_bytes(self.layout.records(cut.half) + cut.used, &self.scratch);
        cut.used += self.scratch.len() / 8;
        true
    }

    /// The epoch has ended as it was prepared for: gives how many records in front only say what
    /// names mean. `None` if nothing was prepared.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn cut(&mut self) -> Result<Option<usize>, Corrupt> {
        let Some(cut) = self.next.take() else { return Ok(None) };
        let next = Head { epoch: self.epoch + 1, half: cut.half, used: cut.used };
        self.adopt(next)?;
        Ok(Some(cut.heads))
    }

    /// The epoch goes on.
    pub fn cancel_cut(&mut self) {
        self.next = None;
        self.memory.store(self.layout.at + NEXT, 0);
    }

    /// What was prepared for `epoch`, if its predecessor ended with a cut.
    pub(crate) fn prepared(&self, epoch: u64) -> Option<Head> {
        let head = Head::parse(self.memory.load(self.layout.at + NEXT), epoch)?;
        (head.epoch == epoch).then_some(head)
    }

    /// Makes what was prepared the log.
    pub(crate) fn adopt(&mut self, head: Head) -> Result<(), Corrupt> {
        (self.epoch, self.half, self.used) = (head.epoch, head.half, head.used);
        self.publish();
        self.cancel_cut();
        self.rescan()
    }

    /// Records up to `used` of `half` are written anew.
    pub(crate) fn note_floor(&self, half: usize, used: usize) {
        let head = Head { epoch: self.epoch, half, used };
        self.memory.store(self.layout.at + FLOORS + half, head.word());
    }
}
