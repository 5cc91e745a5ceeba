//! Answers that outlive their transactions in the log.
//!
//! A module may die between the publication of a transaction and its answer to the request, and a checkpoint may take the transaction out
//! of the log before a successor asks for that answer. So the last answers are kept: each transaction's before its frames are given back.

use crate::layout::{ANSWER, ANSWERS, LONGEST_ANSWER};
use crate::log::Slot;
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
    /// The answer, without its header.
    pub reply: Vec<u8>,
}

fn checksum(number: u64, unique: u64, reply: &[u8]) -> u64 {
    // A memory of zeros holds no answer.
    xxh3_64(reply) ^ number.rotate_left(17) ^ unique | 1
}

impl<M: Memory> Shared<M> {
    fn answer_at(&self, number: u64) -> usize {
        self.layout.answers + (number % ANSWERS as u64) as usize * ANSWER
    }

    /// Keeps the answer to a transaction that leaves the log. One that is cut off is none.
    pub(crate) fn keep_answer(&self, number: u64, unique: u64, reply: &[u8]) {
        let at = self.answer_at(number);
        let Some(reply) = reply.get(..reply.len().min(LONGEST_ANSWER)) else { return };
        self.memory.store(at + 3, 0);
        self.memory.store_words(at, [number, unique, reply.len() as u64]);
        self.memory.store_bytes(at + 4, reply);
        self.memory.store(at + 3, checksum(number, unique, reply));
    }

    /// The answers that are kept.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        (0..ANSWERS as u64).filter_map(|place| {
            let at = self.answer_at(place);
            let [number, unique, length, sum] = self.memory.load_fields(at, [0, 1, 2, 3]);
            let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_ANSWER)?;
            let mut reply = vec![0; length];
            self.memory.load_bytes(at + 4, &mut reply);
            (sum == checksum(number, unique, &reply)).then_some(Answer { number, unique, reply })
        })
    }
}

/// What the requests of this mount were answered, as far as anybody may still ask.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The transaction in the log that is looked at next.
    next: u64,
    found: BTreeMap<u64, Vec<u8>>,
}

impl Answers {
    /// What a request was answered; `None` if nothing of it has happened. Whoever published it does so no more.
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
                self.add(shared, number, record.unique, record.reply);
            }
            number += 1;
        }
        self.next = number;
        for Answer { number, unique, reply } in shared.answers() {
            self.add(shared, number, unique, reply);
        }
        self.found.get(&unique).map(Vec::as_slice)
    }

    fn add<M: Memory>(&mut self, shared: &Shared<M>, number: u64, unique: u64, reply: Vec<u8>) {
        if shared.is_of_mount(number) && unique != 0 {
            self.found.insert(unique, reply);
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
            shared.keep_answer(number, number * 2, &vec![7; number as usize % 300]);
        }
        let kept: Vec<_> = shared.answers().collect();
        assert_eq!(kept.len(), ANSWERS);
        for answer in kept {
            assert!(answer.number >= 3 && answer.unique == answer.number * 2);
            assert_eq!(answer.reply.len(), (answer.number as usize % 300).min(LONGEST_ANSWER));
        }
    }
}
