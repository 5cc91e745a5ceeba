//! How many blocks an operation can take of the layer below, at most: what is taken of its room
//! before anything is published (namespace transactions III-C). This is the model of the stores
//! that the layers above them go by; the store and the logical layer say in their code that they
//! are no worse.
//!
//! - A page of class [`Data`](crate::Class::Data) takes a block each time that it is written: what
//!   it was stays until the next checkpoint.
//! - A page of class [`Metadata`](crate::Class::Metadata) takes a pair of blocks when it is written
//!   for the first time, and nothing later.
//! - The tree of an object has [`FANOUT`] pages or trees below each block. These blocks are pairs.
//! - A new object takes a pair for its inode, and what the table of the objects takes, which has
//!   [`MAPPED`] of them in a page.
//! - Nothing else takes anything: what is removed, cut off or punched frees blocks, after the next
//!   checkpoint.

use crate::id::ObjectId;

/// Pages, or trees, below a block of a tree.
pub const FANOUT: u64 = 256;
/// Blocks of a tree above one another.
pub const LEVELS: u32 = 4;
/// Objects in a page of the table of objects. Its first page is always there.
pub const MAPPED: u64 = 128;

/// Blocks that something can take, or that can be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// All of them.
    pub blocks: u64,
    /// How many pairs are among them: these are two blocks each, at a certain distance.
    pub pairs: u64,
}

impl Credit {
    /// So many single blocks.
    pub fn singles(blocks: u64) -> Self {
        Self { blocks, pairs: 0 }
    }

    /// So many pairs.
    pub fn pairs(pairs: u64) -> Self {
        Self { blocks: pairs.saturating_mul(2), pairs }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            pairs: self.pairs.saturating_add(other.pairs),
        }
    }

    /// What is left of it without the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_sub(other.blocks),
            pairs: self.pairs.saturating_sub(other.pairs),
        }
    }

    /// What both have.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self { blocks: self.blocks.min(other.blocks), pairs: self.pairs.min(other.pairs) }
    }

    /// Whether there is room for it.
    pub fn fits(self, room: Self) -> bool {
        self.blocks <= room.blocks && self.pairs <= room.pairs
    }

    /// Whether nothing is taken.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// How many blocks of a tree are above a page of an object with so many pages.
pub fn levels(pages: u64) -> u32 {
    (0..LEVELS).find(|level| pages <= FANOUT.pow(*level)).unwrap_or(LEVELS)
}

/// Blocks that a tree can take when the pages from `first` to `last` of an object with `pages`
/// pages are written, each of which is two blocks. `before` is the last page before them that is
/// there: the way to it is there as well.
///
/// What is there of an object with so many pages is below one block of that level, however deep the
/// tree is. Besides the ways to the pages from there on, those blocks count that come above the
/// first page when the tree becomes deeper.
pub fn ways(first: u64, last: u64, pages: u64, before: Option<u64>) -> u64 {
    let top = levels(pages.max(last.saturating_add(1)));
    // So far up there is a way to it for sure: more would be there only if the tree had been made
    // for more pages.
    let known = before.map_or(0, |page| levels(page.saturating_add(1)));
    let is_there = |level: u32, number: u64, each: u64| {
        level <= known && before.is_some_and(|page| page / each == number)
    };
    let deeper = if before.is_some() && known == top { 0 } else { top.saturating_sub(1) };
    let each = (1..=top).map(|level| {
        let each = FANOUT.pow(level);
        let (from, to) = (first / each, last / each);
        to - from + u64::from(!is_there(level, from, each))
    });
    each.sum::<u64>() + u64::from(deeper)
}

/// What a new object takes.
pub fn creation(object: ObjectId) -> Credit {
    let page = object.0 / MAPPED;
    // The first page of the table is there, and so is all that is above it.
    let mapping = if page == 0 { 0 } else { 1 + ways(page, page, page, None) };
    Credit::pairs(1 + mapping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn levels_are_those_that_the_pages_take() {
        let of = |pages| levels(pages);
        assert_eq!([of(0), of(1), of(2), of(256), of(257)], [0, 0, 1, 1, 2]);
        assert_eq!([of(65_536), of(65_537), of(u64::MAX)], [2, 3, 4]);
    }

    /// A tree that is made of the same rules as a store's, which grows at its top.
    #[derive(Clone, Default)]
    struct Tree {
        depth: u32,
        /// By level, from 1 on, and number.
        blocks: BTreeSet<(u32, u64)>,
        pages: BTreeSet<u64>,
    }

    impl Tree {
        fn write(&mut self, page: u64) -> u64 {
            let before = self.blocks.len();
            let needed = levels(page + 1);
            if self.pages.is_empty() {
                self.depth = self.depth.max(needed);
            }
            while self.depth < needed {
                self.depth += 1;
                self.blocks.insert((self.depth, 0));
            }
            let way = (1..=self.depth).map(|level| (level, page / FANOUT.pow(level)));
            self.blocks.extend(way);
            self.pages.insert(page);
            (self.blocks.len() - before) as u64
        }

        fn cut(&mut self, from: u64) {
            self.pages.retain(|page| *page < from);
            let pages = &self.pages;
            self.blocks.retain(|(level, number)| {
                let each = FANOUT.pow(*level);
                pages.range(number * each..(number + 1) * each).next().is_some()
            });
            if self.pages.is_empty() {
                self.depth = 0;
            }
        }
    }

    proptest! {
        #![proptest_config(belay_seeds::cases!(3000))]

        /// What is said of a tree is enough, whatever was written to it before, in order or not,
        /// and cut off.
        #[test]
        fn ways_are_enough(
            acts in proptest::collection::vec(
                (0_u32..32, 0_u64..u64::MAX, 1_u64..700, 0_u32..5), 1..12,
            ),
        ) {
            let mut tree = Tree::default();
            let mut size = 0;
            for (bits, number, count, kind) in acts {
                let first = number % (1 << bits);
                if kind == 0 {
                    size = first.min(size);
                    tree.cut(size);
                    continue;
                }
                let last = first + count - 1;
                let before = tree.pages.range(..first).next_back().copied();
                let most = ways(first, last, size, before.filter(|_| kind > 1));
                let mut taken = 0;
                for page in first..=last {
                    taken += tree.write(page);
                }
                size = size.max(last + 1);
                prop_assert!(taken <= most, "{first} to {last}: {taken} of {most}");
            }
        }
    }
}
