//! The number of a request, by which its reply names it: the kernel's, or one of belay's own.

use crate::abi::UNIQUE_RESEND;

/// In the numbers of requests that belay puts to a daemon by itself. The kernel's count up from 0.
const OWN: u64 = 1 << 62;

/// The number of a request. Any word is one, also one that a daemon has made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique(u64);

impl Unique {
    /// The number that a header has.
    #[inline]
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// The number of a request of belay's own; `number` is less than 2^62.
    #[inline]
    #[must_use]
    pub const fn own(number: u64) -> Self {
        Self(OWN | number)
    }

    /// As it stands in a header.
    #[inline]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Whether belay puts this request to the daemon by itself, so that the kernel knows nothing of
    /// it.
    #[inline]
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.0 & (OWN | UNIQUE_RESEND) == OWN
    }

    /// The number of a request at its first delivery: without the mark of a second one.
    #[inline]
    #[must_use]
    pub const fn unmarked(word: u64) -> u64 {
        word & !UNIQUE_RESEND
    }

    /// The number of a request that the kernel delivers again.
    #[inline]
    #[must_use]
    pub const fn marked(word: u64) -> u64 {
        word | UNIQUE_RESEND
    }

    /// Whether the kernel has delivered a request before.
    #[inline]
    #[must_use]
    pub const fn is_marked(word: u64) -> bool {
        word & UNIQUE_RESEND != 0
    }

    /// What one of belay's own was made of, see [`Unique::own`].
    #[inline]
    #[must_use]
    pub const fn own_number(self) -> u64 {
        self.0 & !OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_numbers_are_not_belays_own() {
        for word in [0, 1, 2, OWN - 1, UNIQUE_RESEND, UNIQUE_RESEND | 2, UNIQUE_RESEND | OWN | 2] {
            assert!(!Unique::new(word).is_own(), "{word:#x}");
            assert_eq!(Unique::new(word).word(), word);
        }
        for word in [2, OWN | 2] {
            let again = Unique::marked(word);
            assert!(Unique::is_marked(again) && !Unique::is_marked(word));
            assert_eq!((Unique::unmarked(again), Unique::unmarked(word)), (word, word));
        }
        for number in [0, 2, OWN - 1] {
            let own = Unique::own(number);
            assert!(own.is_own() && Unique::new(own.word()) == own);
            assert_eq!(own.own_number(), number);
        }
    }
}
