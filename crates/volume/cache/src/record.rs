//! How a transaction lies in cells: the first one has a head and the first bytes, each further one
//! the cell after it and the next bytes.

use crate::layout::CELL;
use crate::pool::Version;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Credit, Operation, Transaction, Undecodable};
use xxhash_rust::xxh3::xxh3_64;

/// How a transaction belongs together with another one ([`crate::publisher`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tie {
    /// Not at all.
    #[default]
    Alone,
    /// It can be undone until it is durable: by the record that begins in this cell.
    Revocable(u32),
    /// It undoes that one.
    Undoes(u64),
}

impl Tie {
    const REVOCABLE: u64 = 1 << 62;
    const UNDOES: u64 = 1 << 63;

    fn word(self) -> u64 {
        match self {
            Self::Alone => 0,
            Self::Revocable(cell) => Self::REVOCABLE | u64::from(cell),
            Self::Undoes(number) => Self::UNDOES | number,
        }
    }

    fn of(word: u64) -> Self {
        match word {
            word if word & Self::UNDOES != 0 => Self::Undoes(word & !Self::UNDOES),
            word if word & Self::REVOCABLE != 0 => Self::Revocable(word as u32),
            _ => Self::Alone,
        }
    }
}

/// A transaction as it is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which request it is of; 0 if it is of none.
    pub unique: u64,
    /// What that request is answered with, without a head.
    pub reply: Vec<u8>,
    /// What it changes.
    pub transaction: Transaction,
    /// How much room it can take at most.
    pub cost: Credit,
    /// How it belongs together with another one.
    pub tie: Tie,
}

/// Words of the head: the next cell, the lengths of reply and transaction, the request, a checksum
/// over all, blocks and pairs that it can take, and how it belongs together with another one.
const HEAD: usize = 6;
/// Words of the head of a further cell.
const NEXT: usize = 1;
/// The longest record, in bytes: more than a request can bring about.
const LONGEST: usize = 1 << 20;

/// How many cells a record takes.
pub(crate) fn cells_of(record: &Record) -> usize {
    let words = length(record) / 8;
    match words.checked_sub(CELL - HEAD) {
        None | Some(0) => 1,
        Some(more) => 1 + more.div_ceil(CELL - NEXT),
    }
}

/// Whether a record is longer than any that is read.
pub(crate) fn is_too_long(record: &Record) -> bool {
    length(record) > LONGEST
}

fn length(record: &Record) -> usize {
    record.reply.len().next_multiple_of(8) + record.transaction.bytes().len()
}

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut bytes = record.reply.clone();
    bytes.resize(record.reply.len().next_multiple_of(8), 0);
    bytes.extend_from_slice(record.transaction.bytes());
    bytes
}

fn checksum([lengths, unique, cost, tie]: [u64; 4], bytes: &[u8]) -> u64 {
    xxh3_64(bytes) ^ lengths.rotate_left(17) ^ unique ^ cost.rotate_left(41) ^ tie.rotate_left(29)
}

/// A credit as one word. No transaction takes more than half of it can hold.
fn word_of(cost: Credit) -> u64 {
    let half = |number: u64| number.min(u64::from(u32::MAX));
    half(cost.blocks) << 32 | half(cost.pairs)
}

impl<M: Memory> Shared<M> {
    /// Writes a record into cells that were taken for it ([`cells_of`]).
    pub(crate) fn write_record(&self, record: &Record, cells: &[u32]) {
        let bytes = bytes_of(record);
        let lengths = (record.reply.len() as u64) << 32 | record.transaction.bytes().len() as u64;
        let mut rest = bytes.as_slice();
        for (number, cell) in cells.iter().enumerate() {
            let at = self.layout.cell(*cell);
            let next = cells.get(number + 1).map_or(0, |next| u64::from(*next) + 1);
            self.memory.store(at, next);
            let head = if number == 0 { HEAD } else { NEXT };
            if number == 0 {
                let (unique, cost, tie) = (record.unique, word_of(record.cost), record.tie.word());
                let checksum = checksum([lengths, unique, cost, tie], &bytes);
                self.memory.store_words(at + 1, [lengths, unique, checksum, cost, tie]);
            }
            let (here, later) = rest.split_at(rest.len().min((CELL - head) * 8));
            self.memory.store_bytes(at + head, here);
            rest = later;
        }
    }

    /// Reads the record that begins in a cell, and in which cells it is.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn read_record(&self, first: u32) -> Result<(Record, Vec<u32>), Undecodable> {
        let mut cells = Vec::new();
        let at = self.layout.cell(first);
        let [lengths, unique, sum, cost, tie] = self.memory.load_fields(at, [1, 2, 3, 4, 5]);
        let (reply, transaction) = ((lengths >> 32) as usize, lengths as usize & 0xffff_ffff);
        let whole = reply.next_multiple_of(8) + transaction;
        if whole > LONGEST {
            return Err(Undecodable::new("a record is too long"));
        }
        let mut bytes = Vec::with_capacity(whole);
        let mut next = u64::from(first) + 1;
        while let Some(cell) = next.checked_sub(1) {
            let cell = u32::try_from(cell).unwrap_or(u32::MAX);
            if cell >= self.layout.cells || cells.len() > LONGEST / ((CELL - NEXT) * 8) + 1 {
                return Err(Undecodable::new("a record leads out of the memory"));
            }
            let at = self.layout.cell(cell);
            let head = if cells.is_empty() { HEAD } else { NEXT };
            let here = (whole - bytes.len()).min((CELL - head) * 8);
            if here == 0 && !cells.is_empty() {
                return Err(Undecodable::new("a record goes on behind its end"));
            }
            let begin = bytes.len();
            bytes.resize(begin + here, 0);
            self.memory.load_bytes(at + head, bytes.get_mut(begin..).unwrap_or_default());
            cells.push(cell);
            next = self.memory.load(at);
        }
        if bytes.len() != whole || checksum([lengths, unique, cost, tie], &bytes) != sum {
            return Err(Undecodable::new("a record does not match its checksum"));
        }
        let operations = bytes.split_off(reply.next_multiple_of(8));
        bytes.truncate(reply);
        let transaction = Transaction::decode(operations)?;
        let cost = Credit { blocks: cost >> 32, pairs: cost & 0xffff_ffff };
        Ok((Record { unique, reply: bytes, transaction, cost, tie: Tie::of(tie) }, cells))
    }

    /// The cells of a record that was read, each as it is now, and the frames with its pages.
    ///
    /// # Errors
    /// If it makes no sense.
    pub(crate) fn places_of(
        &self,
        record: &Record,
        cells: Vec<u32>,
    ) -> Result<(Vec<Version>, Vec<Version>), Undecodable> {
        let mut pages = Vec::new();
        for operation in record.transaction.operations() {
            if let Operation::Pages { frames, .. } = operation? {
                pages.extend(frames.iter().map(|frame| Version::from_number(frame.get())));
            }
        }
        let cells = cells.into_iter().filter_map(|cell| self.cells().version(cell)).collect();
        Ok((cells, pages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Capacity, Layout};
    use belay_object::ObjectId;
    use belay_sys::Mapping;

    fn record(operations: u64, reply: usize) -> Record {
        let mut transaction = Transaction::new();
        for number in 0..operations {
            transaction.add(&Operation::Delete { object: ObjectId(number) });
        }
        let cost = Credit { blocks: operations, pairs: 1 };
        let tie = [Tie::Alone, Tie::Revocable(reply as u32), Tie::Undoes(operations)];
        let tie = tie[operations as usize % 3];
        Record { unique: operations + 7, reply: vec![reply as u8; reply], transaction, cost, tie }
    }

    /// Whatever its length, in cells in whatever order; and a flipped bit in any of them is
    /// noticed.
    #[test]
    fn a_record_is_read_as_it_was_written() {
        let layout = Layout::new(Capacity { frames: 1, slots: 1 });
        let shared = Shared::new(Mapping::blank(layout.words * 8).unwrap(), layout);
        for (operations, reply) in
            (0..60).flat_map(|operations| [(operations, 0), (operations, 101)])
        {
            let record = record(operations, reply);
            let cells: Vec<u32> = (0..cells_of(&record) as u32).rev().collect();
            shared.write_record(&record, &cells);
            let read = shared.read_record(cells[0]).unwrap();
            assert_eq!(read, (record, cells.clone()), "{operations} operations");
            for cell in cells.iter().filter(|_| operations > 0) {
                // The first word behind the head of any cell is a part of what was written, unless
                // the record ends before.
                let at = layout.cell(*cell) + HEAD;
                let word = shared.memory.load(at);
                shared.memory.store(at, word ^ 1 << 40);
                let is_in = shared.read_record(cells[0]).is_err();
                shared.memory.store(at, word);
                assert!(is_in || cell == &cells[cells.len() - 1], "{operations} operations");
            }
        }
    }

    #[test]
    fn records_that_lead_anywhere_are_none() {
        let layout = Layout::new(Capacity { frames: 1, slots: 1 });
        let shared = Shared::new(Mapping::blank(layout.words * 8).unwrap(), layout);
        let record = record(20, 3);
        shared.write_record(&record, &[4, 5]);
        // A loop, and a cell that there is not.
        for next in [4, 5, 6, u64::from(layout.cells) + 1, u64::MAX] {
            shared.memory.store(layout.cell(5), next);
            let read = shared.read_record(4);
            assert!(read.is_err(), "{next}: {read:?}");
        }
        assert!(shared.read_record(layout.cells).is_err());
    }
}
