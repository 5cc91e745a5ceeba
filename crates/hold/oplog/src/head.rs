//! The one word whose change changes the log: check (24 bits) | epoch (low 11 bits) | half | words
//! of records (28 bits).

use xxhash_rust::xxh3::xxh3_64_with_seed;

const LENGTH_BITS: u32 = 28;
const HALF_BITS: u32 = 1;
const EPOCH_BITS: u32 = 11;
const PLAIN_BITS: u32 = LENGTH_BITS + HALF_BITS + EPOCH_BITS;
/// The most words that a half can have.
pub(crate) const MOST_WORDS: usize = (1 << LENGTH_BITS) - 1;

/// What the head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Which epoch the log is of.
    pub(crate) epoch: u64,
    /// Which half the records are in.
    pub(crate) half: usize,
    /// Words of records.
    pub(crate) used: usize,
}

impl Head {
    /// The word that says so; never 0.
    pub(crate) fn word(&self) -> u64 {
        let epoch = self.epoch & ((1 << EPOCH_BITS) - 1);
        let plain = epoch << (LENGTH_BITS + HALF_BITS)
            | (self.half as u64 & 1) << LENGTH_BITS
            | self.used.min(MOST_WORDS) as u64;
        let check = xxh3_64_with_seed(&plain.to_ne_bytes(), self.epoch);
        check >> PLAIN_BITS << PLAIN_BITS | plain
    }

    /// The head of `epoch`, or of one of those before it; `None` if it is no such thing.
    pub(crate) fn parse(word: u64, epoch: u64) -> Option<Self> {
        let found = word >> (LENGTH_BITS + HALF_BITS);
        let age = epoch.wrapping_sub(found) & ((1 << EPOCH_BITS) - 1);
        let head = Self {
            epoch: epoch.checked_sub(age)?,
            half: (word >> LENGTH_BITS) as usize & 1,
            used: word as usize & MOST_WORDS,
        };
        (head.word() == word).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_of_its_epoch_or_dead_or_nothing() {
        for epoch in [0, 1, 7, 2047, 2048, 1 << 40] {
            for (half, used) in [(0, 0), (1, 12_345), (1, MOST_WORDS)] {
                let head = Head { epoch, half, used };
                assert_ne!(head.word(), 0);
                for age in [0, 1, 2, 2047] {
                    assert_eq!(Head::parse(head.word(), epoch + age), Some(head));
                }
                assert_eq!(Head::parse(head.word(), epoch + 2048), None);
                assert_eq!(Head::parse(head.word(), epoch.wrapping_sub(1)), None);
                for bit in 0..64 {
                    assert_eq!(Head::parse(head.word() ^ 1 << bit, epoch), None);
                }
            }
        }
    }
}
