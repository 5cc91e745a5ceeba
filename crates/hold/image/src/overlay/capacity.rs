//! How large an overlay and its pieces are.

/// Bytes of a sector, the smallest piece of the image that the overlay holds.
pub const SECTOR: usize = 512;
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// The furthest that an image may reach, as for any file.
pub(crate) const FURTHEST: u64 = i64::MAX as u64;

pub(super) const PAGE_WORDS: usize = PAGE / 8;
/// Words of a side's filter: enough to tell all parts of 2 GiB apart.
pub(super) const FILTER_WORDS: usize = 128;
/// Words of an index entry.
pub(super) const ENTRY_WORDS: usize = 2;
/// Most pages that a side can have, by the bits that an entry has for the number of one.
pub(super) const MOST_PAGES: usize = 1 << 24;

/// How much the overlay can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Pages of 4 KiB, in each of the two sides; 0 makes an overlay that refuses everything and
    /// takes no memory. At most 16,777,216.
    pub pages: usize,
}

impl Capacity {
    /// That of a real mount: 256 MiB a side, all of it sparse. See [`super::Overlay::limited`].
    pub const MOUNT: Self = Self { pages: 1 << 16 };

    /// Words of memory that it takes: whole pages.
    pub const fn words(self) -> usize {
        if self.pages == 0 { 0 } else { PAGE_WORDS + 2 * (self.index_words() + self.pool_words()) }
    }

    /// Pages, as far as entries can number them.
    pub(super) const fn bounded(self) -> usize {
        if self.pages < MOST_PAGES { self.pages } else { MOST_PAGES }
    }

    /// Entries of a side's largest index: a power of two, and at least twice as many as there can
    /// be pages.
    pub(super) const fn entries(self) -> usize {
        let twice = (self.bounded() * 2).next_power_of_two();
        if twice < 8 { 8 } else { twice }
    }

    /// Entries of its first one, a power of two as well: of a real mount 4096, which is for 8 MiB,
    /// and stays in a processor's cache.
    pub(super) const fn first_entries(self) -> usize {
        let part = self.entries() / 32;
        if part < 8 { 8 } else { part }
    }

    /// Words of all indices of a side, each twice as large as the one before.
    pub(super) const fn index_words(self) -> usize {
        let entries = 2 * self.entries() - self.first_entries();
        (entries * ENTRY_WORDS).div_ceil(PAGE_WORDS) * PAGE_WORDS
    }

    pub(super) const fn pool_words(self) -> usize {
        self.bounded() * PAGE_WORDS
    }
}

/// The bits of sectors `from` to `to` of a page, `to` not included.
#[inline]
pub(super) fn bits(from: usize, to: usize) -> u8 {
    let below = |n: usize| ((1u16 << n.min(PAGE / SECTOR)) - 1) as u8;
    below(to) & !below(from)
}
