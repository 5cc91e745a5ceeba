//! How much memory a log takes, and where its parts lie. Offsets are in words of 8 bytes.

use crate::pages::PAGE_WORDS;
use std::ops::Range;

/// How much a log can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of records. Twice that much is set apart, see [`crate::Oplog::append`]; up to 2 GiB.
    pub record_bytes: usize,
    /// Pages of data, those of requests in flight included.
    pub pages: usize,
}

impl Capacity {
    /// The capacity of a real mount: 96 MiB of data, 32 MiB of records, all of it sparse.
    pub const MOUNT: Self = Self { record_bytes: 32 << 20, pages: 24 << 10 };
    /// A small one for simulations and tests.
    pub const SMALL: Self = Self { record_bytes: 16 << 10, pages: 32 };

    /// Words that a log of this capacity takes.
    pub const fn words(&self) -> usize {
        PAGE_WORDS + 2 * self.half() + self.pages * PAGE_WORDS
    }

    /// Words of one half of the records.
    pub(crate) const fn half(&self) -> usize {
        let most = (crate::head::MOST_WORDS / PAGE_WORDS) * PAGE_WORDS;
        let words = self.record_bytes.div_ceil(8).div_ceil(PAGE_WORDS) * PAGE_WORDS;
        if words < most { words } else { most }
    }
}

/// Where the parts of a log lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLayout {
    /// First word of the log.
    pub(crate) at: usize,
    /// What it can hold.
    pub(crate) capacity: Capacity,
}

impl LogLayout {
    /// First word of the records in `half`, 0 or 1.
    pub(crate) fn records(&self, half: usize) -> usize {
        self.at + PAGE_WORDS + half * self.capacity.half()
    }

    /// First word of the pages.
    pub(crate) fn arena(&self) -> usize {
        self.records(2)
    }

    /// Bytes of the memory in which pages from `first` on lie.
    pub(crate) fn page_bytes(&self, first: usize) -> Range<usize> {
        let start = self.arena() + first.min(self.capacity.pages) * PAGE_WORDS;
        start * 8..(self.arena() + self.capacity.pages * PAGE_WORDS) * 8
    }
}
