//! The memory that the recorder lives in, as words.

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

    /// Copies `out.len()` bytes that start at word `at`.
    fn load_bytes(&self, at: usize, out: &mut [u8]) {
        for (i, chunk) in out.chunks_mut(8).enumerate() {
            let word = self.load(at.wrapping_add(i)).to_ne_bytes();
            chunk.copy_from_slice(word.get(..chunk.len()).unwrap_or(&word));
        }
    }

    /// Writes `bytes` from word `at` on; the last word is filled up with zeros.
    fn store_bytes(&self, at: usize, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            if let Some(head) = word.get_mut(..chunk.len()) {
                head.copy_from_slice(chunk);
            }
            self.store(at.wrapping_add(i), u64::from_ne_bytes(word));
        }
    }
}

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
}

impl<M: Memory + ?Sized> Memory for std::sync::Arc<M> {
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
}

/// The high half of a word.
#[inline]
pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The low half of a word.
#[inline]
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}

/// A word of two halves.
#[inline]
pub(crate) fn pair(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}
