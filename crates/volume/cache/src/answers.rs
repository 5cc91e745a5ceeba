//! Answers that outlive their transactions in the log.
//!
//! A module may die between the publication of a transaction and its answer to the request, and a
//! checkpoint may take the transaction out of the log before a successor asks for that answer. So
//! the last answers are kept: each transaction's before its frames are given back.

use crate::layout::{ANSWER, ANSWERS, LONGEST_ANSWER};
use crate::log::Slot;
use crate::record::{Record, Tie};
use crate::shared::Shared;
use belay_memory::Memory;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The transaction.
    pub number: u64,
    /// The request; 0 if there was none.
    pub unique: u64,
    /// The answer, without its header; `None` if what the request had done was undone.
    pub reply: Option<Vec<u8>>,
}

impl Answer {
    /// That of a transaction.
    pub(crate) fn of(number: u64, record: Record) -> Self {
        let is_undone = matches!(record.tie, Tie::Undoes(_));
        Self { number, unique: record.unique, reply: (!is_undone).then_some(record.reply) }
    }
}

/// The length of an answer that there is not.
const UNDONE: u64 = u64::MAX;

fn checksum(number: u64, unique: u64, length: u64, reply: &[u8]) -> u64 {
    // A memory of zeros holds no answer.
    xxh3_64(reply) ^ number.rotate_left(17) ^ unique ^ length.rotate_left(41) | 1
}

impl<M: Memory> Shared<M> {
    fn answer_at(&self, number: u64) -> usize {
        self.layout.answers + (number % ANSWERS as u64) as usize * ANSWER
    }

    /// Keeps the answer to a transaction that leaves the log. One that is cut off is none.
    pub(crate) fn keep_answer(&self, answer: &Answer) {
        let Answer { number, unique, .. } = *answer;
        let at = self.answer_at(number);
        let reply = answer.reply.as_deref().unwrap_or_default();
        let Some(reply) = reply.get(..reply.len().min(LONGEST_ANSWER)) else { return };
        let length = if answer.reply.is_some() { reply.len() as u64 } else { UNDONE };
        self.memory.store(at + 3, 0);
        self.memory.store_words(at, [number, unique, length]);
        self.memory.store_bytes(at + 4, reply);
        self.memory.store(at + 3, checksum(number, unique, length, reply));
    }

    /// The answers that are kept.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        (0..ANSWERS as u64).filter_map(|place| {
            let at = self.answer_at(place);
            let [number, unique, length, sum] = self.memory.load_fields(at, [0, 1, 2, 3]);
            let is_there = length != UNDONE;
            let bytes = usize::try_from(if is_there { length } else { 0 }).ok()?;
            let mut reply = vec![0; (bytes <= LONGEST_ANSWER).then_some(bytes)?];
            self.memory.load_bytes(at + 4, &mut reply);
            let is_it = sum == checksum(number, unique, length, &reply);
            is_it.then(|| Answer { number, unique, reply: is_there.then_some(reply) })
        })
    }
}

/// What the requests of this mount were answered, as far as anybody may still ask.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The transaction in the log that is looked at next.
    next: u64,
    /// By request: its last transaction, and what that says.
    found: BTreeMap<u64, (u64, Option<Vec<u8>>)>,
}

impl Answers {
    /// What a request was answered; `None` if nothing of it has happened, or all of it was undone.
    /// Whoever published it does so no more.
    pub fn to<M: Memory>(&mut self, shared: &Shared<M>, unique: u64) -> Option<&[u8]> {
        let mut number = self.next;
        loop {
            number = number.max(shared.trimmed());
            let Slot::Published(first) = shared.slot(number) else {
                if shared.trimmed() > number {
                    // It has left the log since, which goes on.
                    continue;
                }
                break;
            };
            // One that cannot be read has left the log meanwhile, and is among those that are kept.
            if let Ok((record, _)) = shared.read_record(first) {
                self.add(shared, Answer::of(number, record));
            }
            number += 1;
        }
        self.next = number;
        for answer in shared.answers() {
            self.add(shared, answer);
        }
        self.found.get(&unique).and_then(|(_, reply)| reply.as_deref())
    }

    fn add<M: Memory>(&mut self, shared: &Shared<M>, Answer { number, unique, reply }: Answer) {
        // Those that are kept come in any order.
        let is_last = self.found.get(&unique).is_none_or(|(last, _)| *last <= number);
        if shared.is_of_mount(number) && unique != 0 && is_last {
            self.found.insert(unique, (number, reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Capacity, Layout};
    use belay_sys::Mapping;

    #[test]
    fn the_last_answers_are_kept() {
        let layout = Layout::new(Capacity { frames: 1, slots: 1 });
        let shared = Shared::new(Mapping::blank(layout.words * 8).unwrap(), layout);
        assert_eq!(shared.answers().count(), 0);
        for number in 0..ANSWERS as u64 + 3 {
            let reply = (number % 7 != 0).then(|| vec![7; number as usize % 300]);
            shared.keep_answer(&Answer { number, unique: number * 2, reply });
        }
        let kept: Vec<_> = shared.answers().collect();
        assert_eq!(kept.len(), ANSWERS);
        for answer in kept {
            assert!(answer.number >= 3 && answer.unique == answer.number * 2);
            let length = (answer.number as usize % 300).min(LONGEST_ANSWER);
            let wanted = (answer.number % 7 != 0).then_some(length);
            assert_eq!(answer.reply.map(|reply| reply.len()), wanted);
        }
    }
}
