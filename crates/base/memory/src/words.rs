//! Shared memory, as words.

use belay_sys::Mapping;
use std::sync::atomic::Ordering;

/// Words of memory that several processes, or a simulated machine, share.
///
/// Offsets are in words of 8 bytes. A load outside of the memory gives 0 and a store outside
/// of it is dropped: an offset read from memory that a dying daemon may have scribbled over
/// must never bring its reader down.
pub trait Memory {
    /// The value of word `at`.
    fn load(&self, at: usize) -> u64;
    /// Sets word `at`. Stores become visible in program order.
    fn store(&self, at: usize, value: u64);
    /// Sets word `at` to `new` if it is `old`; gives the value found.
    ///
    /// # Errors
    /// The value found, if it was not `old`.
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64>;
    /// Adds to word `at`; gives the value before.
    fn add(&self, at: usize, by: u64) -> u64;

    /// The values of the words `fields` behind word `at`: one record's, so that its bounds are
    /// looked at once.
    #[inline]
    fn load_fields<const N: usize>(&self, at: usize, fields: [usize; N]) -> [u64; N] {
        fields.map(|field| self.load(at.wrapping_add(field)))
    }

    /// Sets words from `at` on, in their order.
    #[inline]
    fn store_words<const N: usize>(&self, at: usize, values: [u64; N]) {
        for (i, value) in values.into_iter().enumerate() {
            self.store(at.wrapping_add(i), value);
        }
    }

    /// Copies `out.len()` bytes that start at word `at`.
    #[inline]
    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        let (whole, rest) = out.as_chunks_mut::<8>();
        let words = whole.len();
        for (i, chunk) in whole.iter_mut().enumerate() {
            *chunk = self.load(at.wrapping_add(i)).to_ne_bytes();
        }
        if !rest.is_empty() {
            put_tail(self.load(at.wrapping_add(words)), rest);
        }
    }

    /// Copies `out.len()` bytes that start at byte `from`, which need not be the start of a word.
    #[inline]
    fn load_unaligned(&self, from: usize, out: &mut [u8]) {
        let skip = from % 8;
        let head = if skip == 0 { 0 } else { (8 - skip).min(out.len()) };
        let (first, rest) = out.split_at_mut(head);
        if !first.is_empty() {
            let word = self.load(from / 8).to_ne_bytes();
            for (place, byte) in first.iter_mut().zip(word.iter().skip(skip)) {
                *place = *byte;
            }
        }
        if !rest.is_empty() {
            self.load_bytes((from + head) / 8, rest);
        }
    }

    /// Writes `bytes` from word `at` on; the last word is filled up with zeros.
    #[inline]
    fn store_bytes(&self, at: usize, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        for (i, chunk) in whole.iter().enumerate() {
            self.store(at.wrapping_add(i), u64::from_ne_bytes(*chunk));
        }
        if !rest.is_empty() {
            self.store(at.wrapping_add(whole.len()), tail(rest));
        }
    }

    /// Tells that `bytes` bytes from word `at` on are going to be written soon: they may be brought
    /// into the processor's cache. Changes nothing.
    #[inline]
    fn prefetch(&self, _at: usize, _bytes: usize) {}
}

/// The last word of a byte string: fewer than 8 bytes, filled up with zeros. A loop, because a copy
/// of unknown length is a call, and each name ends in one of these.
#[inline]
#[must_use]
pub fn tail(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0u64, |word, byte| (word << 8) | u64::from(*byte)).to_le()
}

/// The first bytes of a word.
#[inline]
fn put_tail(word: u64, rest: &mut [u8]) {
    for (place, byte) in rest.iter_mut().zip(word.to_ne_bytes()) {
        *place = byte;
    }
}

/// Bytes from which on copying them at once is faster than by words.
const LONG: usize = 256;

impl Memory for Mapping {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.words().get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.words().get(at) {
            word.store(value, Ordering::Release);
        }
    }

    #[inline]
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.words().get(at).map_or(Err(0), |word| {
            word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        })
    }

    #[inline]
    fn add(&self, at: usize, by: u64) -> u64 {
        self.words().get(at).map_or(0, |word| word.fetch_add(by, Ordering::AcqRel))
    }

    // As above, with one check of the bounds for all words.

    #[inline]
    fn load_fields<const N: usize>(&self, at: usize, fields: [usize; N]) -> [u64; N] {
        let end = at.wrapping_add(fields.iter().fold(0, |most, field| most.max(*field + 1)));
        let Some(record) = self.words().get(at..end) else { return [0; N] };
        fields.map(|field| record.get(field).map_or(0, |word| word.load(Ordering::Acquire)))
    }

    #[inline]
    fn store_words<const N: usize>(&self, at: usize, values: [u64; N]) {
        if let Some(words) = self.words().get(at..at.wrapping_add(N)) {
            for (word, value) in words.iter().zip(values) {
                word.store(value, Ordering::Release);
            }
        }
    }

    #[inline]
    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        if out.len() >= LONG && self.copy_out(at, out) {
            return;
        }
        let words = self.words().get(at..).unwrap_or_default();
        let (whole, rest) = out.as_chunks_mut::<8>();
        let (inside, outside) = whole.split_at_mut(whole.len().min(words.len()));
        for (chunk, word) in inside.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Acquire).to_ne_bytes();
        }
        outside.fill([0; 8]);
        if !rest.is_empty() {
            let last = words.get(inside.len()).filter(|_| outside.is_empty());
            put_tail(last.map_or(0, |word| word.load(Ordering::Acquire)), rest);
        }
    }

    #[inline]
    fn store_bytes(&self, at: usize, bytes: &[u8]) {
        if bytes.len() >= LONG {
            let (whole, rest) = bytes.split_at(bytes.len() & !7);
            if self.fill(at, whole) {
                if !rest.is_empty() {
                    self.store(at + whole.len() / 8, tail(rest));
                }
                return;
            }
        }
        let words = self.words().get(at..).unwrap_or_default();
        let (whole, rest) = bytes.as_chunks::<8>();
        // Four words a turn, for listings.
        let (fours, ones) = whole.as_chunks::<4>();
        let (word_fours, _) = words.as_chunks::<4>();
        for (four, words) in fours.iter().zip(word_fours) {
            for (chunk, word) in four.iter().zip(words) {
                word.store(u64::from_ne_bytes(*chunk), Ordering::Release);
            }
        }
        let words = words.get(fours.len() * 4..).unwrap_or_default();
        for (chunk, word) in ones.iter().zip(words) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Release);
        }
        if let (false, Some(word)) = (rest.is_empty(), words.get(ones.len())) {
            word.store(tail(rest), Ordering::Release);
        }
    }

    #[inline]
    fn prefetch(&self, at: usize, bytes: usize) {
        Mapping::prefetch(self, at, bytes);
    }
}

impl<M: Memory> Memory for std::sync::Arc<M> {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        (**self).load(at)
    }
    #[inline]
    fn store(&self, at: usize, value: u64) {
        (**self).store(at, value);
    }
    #[inline]
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        (**self).compare_exchange(at, old, new)
    }
    #[inline]
    fn add(&self, at: usize, by: u64) -> u64 {
        (**self).add(at, by)
    }
    #[inline]
    fn load_fields<const N: usize>(&self, at: usize, fields: [usize; N]) -> [u64; N] {
        (**self).load_fields(at, fields)
    }
    #[inline]
    fn store_words<const N: usize>(&self, at: usize, values: [u64; N]) {
        (**self).store_words(at, values);
    }
    #[inline]
    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        (**self).load_bytes(at, out);
    }
    #[inline]
    fn store_bytes(&self, at: usize, bytes: &[u8]) {
        (**self).store_bytes(at, bytes);
    }
    #[inline]
    fn prefetch(&self, at: usize, bytes: usize) {
        (**self).prefetch(at, bytes);
    }
}

/// The high half of a word.
#[inline]
#[must_use]
pub fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The low half of a word.
#[inline]
#[must_use]
pub fn low(word: u64) -> u32 {
    word as u32
}

/// A word of two halves.
#[inline]
#[must_use]
pub fn pair(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}
