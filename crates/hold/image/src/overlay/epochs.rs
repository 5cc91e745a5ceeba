//! The header: which epoch is the current one, which is on the image, and what each side is.

use super::area::Overlay;
use super::capacity::{FILTER_WORDS, FURTHEST, PAGE_WORDS};
use super::refused::Corrupt;
use belay_memory::Memory;

const EPOCH: usize = 0; // check (24 bits) | number
const COMMITTED: usize = 8; // the same; the committer's word, in a cache line of its own
const SIDES: [usize; 2] = [16, 24];
const FILTERS: usize = 64; // of both sides, one behind the other

// Words of a side.
const USED: usize = 0; // stamp | pages in use
const LENGTH: usize = 1;
const CUT: usize = 2;
const START: usize = 3;
const CHECK: usize = 4;
const ENTRIES: usize = 5; // of its index

const _: () = assert!(FILTERS + 2 * FILTER_WORDS <= PAGE_WORDS, "the header is a page");

/// Bits of an epoch's number: enough for one a millisecond in 34 years.
const NUMBER_BITS: u32 = 40;

/// What the header says of a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Its own words.
    at: usize,
    /// First word of its index, and entries of that: a power of two.
    pub(super) index: usize,
    pub(super) entries: usize,
    /// First word of its filter.
    pub(super) filter: usize,
    /// First word of its pool.
    pub(super) pool: usize,
    /// What its entries carry; 0 for a side that was never used.
    pub(super) stamp: u32,
    /// Pages in use.
    pub(super) used: usize,
    /// The image's length.
    pub(super) length: u64,
    /// Where, in the image, what is below ends.
    pub(super) cut: u64,
    /// The image's length when the epoch began.
    pub(super) start: u64,
}

/// What the header says.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) epoch: u64,
    pub(super) current: Side,
    /// The side of the epoch before, while it is not committed.
    pub(super) sealed: Option<Side>,
}

impl<M: Memory> Overlay<'_, M> {
    /// The number of the current epoch, counted from 1.
    ///
    /// # Errors
    /// If the memory is corrupt.
    #[inline]
    pub fn epoch(&self) -> Result<u64, Corrupt> {
        match self.memory.load(self.at + EPOCH) {
            0 => Ok(1),
            word => decode(word, EPOCH),
        }
    }

    /// The last epoch that is on the image, durably; 0 for none.
    ///
    /// # Errors
    /// If the memory is corrupt.
    #[inline]
    pub fn committed(&self) -> Result<u64, Corrupt> {
        match self.memory.load(self.at + COMMITTED) {
            0 => Ok(0),
            word => decode(word, COMMITTED),
        }
    }

    /// Notes that the sealed epoch, which must be `epoch`, is on the image, durably. The
    /// committer's. Any other number changes nothing.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn set_committed(&self, epoch: u64) -> Result<(), Corrupt> {
        if epoch > self.committed()? && epoch.checked_add(1) == Some(self.epoch()?) {
            self.memory.store(self.at + COMMITTED, encode(epoch, COMMITTED));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn begin_epoch(&self, epoch: u64) {
        self.memory.store(self.at + EPOCH, encode(epoch, EPOCH));
    }

    #[inline]
    pub(super) fn state(&self) -> Result<State, Corrupt> {
        let mut epoch = self.epoch()?;
        loop {
            let committed = self.committed()?;
            if committed < epoch && epoch - committed <= 2 {
                let sealed = (committed + 1 < epoch).then(|| self.side(epoch - 1));
                return Ok(State { epoch, current: self.side(epoch), sealed });
            }
            // To one who neither seals nor commits these may come from two instants.
            let now = self.epoch()?;
            if now <= epoch {
                return Err(Corrupt);
            }
            epoch = now;
        }
    }

    /// The side of an epoch, past, current or next.
    #[inline]
    pub(super) fn side(&self, epoch: u64) -> Side {
        let number = (epoch & 1) as usize;
        let [even, odd] = SIDES;
        let at = self.at + if number == 0 { even } else { odd };
        let [used, length, cut, start, entries] =
            self.memory.load_fields(at, [USED, LENGTH, CUT, START, ENTRIES]);
        let indices = self.at + PAGE_WORDS;
        let index_words = self.index_words;
        let (index, entries) = self.index_of(indices + number * index_words, entries as usize);
        Side {
            at,
            index,
            entries,
            filter: self.at + FILTERS + number * FILTER_WORDS,
            pool: indices + 2 * index_words + number * self.capacity.pool_words(),
            stamp: (used >> 32) as u32,
            used: used as u32 as usize,
            // What is longer than any file can be is not taken over: sums of these stay numbers.
            length: length.min(FURTHEST),
            cut: cut.min(FURTHEST),
            start: start.min(FURTHEST),
        }
    }

    /// Sets a side's words, but not those of what it holds.
    pub(super) fn put_side(&self, side: &Side) {
        let words = [side.length, side.cut, side.start, check_of(side), side.entries as u64];
        self.memory.store_words(side.at + LENGTH, words);
    }

    /// Sets how many pages of a side are in use.
    #[inline]
    pub(super) fn put_used(&self, side: &Side) {
        self.memory.store(side.at + USED, u64::from(side.stamp) << 32 | side.used as u64);
    }

    /// Whether a side's words are those that were written together.
    pub(super) fn is_whole(&self, side: &Side) -> bool {
        self.memory.load(side.at + CHECK) == check_of(side)
    }

    /// Makes a side hold nothing, over an image of `length` bytes.
    pub(super) fn empty(&self, side: &mut Side, length: u64) {
        let first = self.first_index(side);
        if side.stamp == u32::MAX {
            // Stamps start again, and entries of old ones may be there.
            for at in first..first + self.index_words {
                self.memory.store(at, 0);
            }
            side.stamp = 0;
        }
        side.stamp += 1;
        side.used = 0;
        (side.index, side.entries) = self.index_of(first, 0);
        self.clear_filter(side);
        (side.length, side.cut, side.start) = (length, length, length);
        self.put_used(side);
        self.put_side(side);
    }
}

fn check_of(side: &Side) -> u64 {
    let words = [u64::from(side.stamp), side.length, side.cut, side.start, side.entries as u64];
    words.into_iter().fold(1, mix)
}

/// A number as a word that tells whether somebody else has written it. `role` tells the words
/// apart.
#[inline]
fn encode(number: u64, role: usize) -> u64 {
    let number = number & ((1 << NUMBER_BITS) - 1);
    mix(role as u64, number) << NUMBER_BITS | number
}

#[inline]
fn decode(word: u64, role: usize) -> Result<u64, Corrupt> {
    let number = word & ((1 << NUMBER_BITS) - 1);
    if encode(number, role) == word { Ok(number) } else { Err(Corrupt) }
}

/// A product folded, as in the logs of requests: enough against accidents, and a few instructions.
#[inline]
pub(super) fn mix(state: u64, word: u64) -> u64 {
    let state = state ^ word ^ 0x9e37_79b9_7f4a_7c15;
    let wide = u128::from(state) * 0xd6e8_feb8_6659_fd93_u128 + 0xa076_1d64_78bd_642f;
    (wide as u64) ^ (wide >> 64) as u64
}
