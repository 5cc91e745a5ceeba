//! How a transaction lies in frames: the first one has a head and the first bytes, each further one the frame after it and the next bytes.

use crate::frames::Version;
use crate::layout::FRAME;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Credit, Operation, Transaction, Undecodable};
use xxhash_rust::xxh3::xxh3_64;

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
}

/// Words of the head: the next frame, the lengths of reply and transaction, the request, a checksum over all, and blocks and pairs that it can
/// take.
const HEAD: usize = 5;
/// Words of the head of a further frame.
const NEXT: usize = 1;
/// The longest record, in bytes: more than a request can bring about.
const LONGEST: usize = 1 << 20;

/// How many frames a record takes.
pub(crate) fn frames_of(record: &Record) -> usize {
    let words = length(record) / 8;
    match words.checked_sub(FRAME - HEAD) {
        None | Some(0) => 1,
        Some(more) => 1 + more.div_ceil(FRAME - NEXT),
    }
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

fn checksum(lengths: u64, unique: u64, cost: u64, bytes: &[u8]) -> u64 {
    xxh3_64(bytes) ^ lengths.rotate_left(17) ^ unique ^ cost.rotate_left(41)
}

/// A credit as one word. No transaction takes more than half of it can hold.
fn word_of(cost: Credit) -> u64 {
    let half = |number: u64| number.min(u64::from(u32::MAX));
    half(cost.blocks) << 32 | half(cost.pairs)
}

impl<M: Memory> Shared<M> {
    /// Writes a record into frames that were taken for it ([`frames_of`]).
    pub(crate) fn write_record(&self, record: &Record, frames: &[u32]) {
        let bytes = bytes_of(record);
        let lengths = (record.reply.len() as u64) << 32 | record.transaction.bytes().len() as u64;
        let mut rest = bytes.as_slice();
        for (number, frame) in frames.iter().enumerate() {
            let at = self.layout.content(*frame);
            let next = frames.get(number + 1).map_or(0, |next| u64::from(*next) + 1);
            self.memory.store(at, next);
            let head = if number == 0 { HEAD } else { NEXT };
            if number == 0 {
                let cost = word_of(record.cost);
                let checksum = checksum(lengths, record.unique, cost, &bytes);
                self.memory.store_words(at + 1, [lengths, record.unique, checksum, cost]);
            }
            let (here, later) = rest.split_at(rest.len().min((FRAME - head) * 8));
            self.memory.store_bytes(at + head, here);
            rest = later;
        }
    }

    /// Reads the record that begins in a frame, and in which frames it is.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn read_record(&self, first: u32) -> Result<(Record, Vec<u32>), Undecodable> {
        let mut frames = Vec::new();
        let at = self.layout.content(first);
        let [lengths, unique, sum, cost] = self.memory.load_fields(at, [1, 2, 3, 4]);
        let (reply, transaction) = ((lengths >> 32) as usize, lengths as usize & 0xffff_ffff);
        let whole = reply.next_multiple_of(8) + transaction;
        if whole > LONGEST {
            return Err(Undecodable::new("a record is too long"));
        }
        let mut bytes = Vec::with_capacity(whole);
        let mut next = u64::from(first) + 1;
        while let Some(frame) = next.checked_sub(1) {
            let frame = u32::try_from(frame).unwrap_or(u32::MAX);
            if frame >= self.layout.capacity.frames || frames.len() > LONGEST / (FRAME * 8) + 1 {
                return Err(Undecodable::new("a record leads out of the memory"));
            }
            let at = self.layout.content(frame);
            let head = if frames.is_empty() { HEAD } else { NEXT };
            let here = (whole - bytes.len()).min((FRAME - head) * 8);
            let begin = bytes.len();
            bytes.resize(begin + here, 0);
            self.memory.load_bytes(at + head, bytes.get_mut(begin..).unwrap_or_default());
            frames.push(frame);
            next = self.memory.load(at);
        }
        if bytes.len() != whole || checksum(lengths, unique, cost, &bytes) != sum {
            return Err(Undecodable::new("a record does not match its checksum"));
        }
        let operations = bytes.split_off(reply.next_multiple_of(8));
        bytes.truncate(reply);
        let transaction = Transaction::decode(operations)?;
        let cost = Credit { blocks: cost >> 32, pairs: cost & 0xffff_ffff };
        Ok((Record { unique, reply: bytes, transaction, cost }, frames))
    }

    /// The frames of the record that begins in a frame, and those with its pages, each as it is now.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn frames_of_record(
        &self,
        first: u32,
    ) -> Result<(Vec<Version>, Vec<Version>), Undecodable> {
        let (record, own) = self.read_record(first)?;
        let mut pages = Vec::new();
        for operation in record.transaction.operations() {
            if let Operation::Pages { frames, .. } = operation? {
                pages.extend(frames.iter().map(|frame| Version::from_number(frame.get())));
            }
        }
        let own = own.into_iter().filter_map(|frame| self.version(frame)).collect();
        Ok((own, pages))
    }
}
