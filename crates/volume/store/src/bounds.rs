//! How much room operations can take at most, and how much there is for sure.
//!
//! What each operation takes:
//!
//! | operation | single blocks | pairs |
//! | --- | --- | --- |
//! | a new file | 0 | 1, and [`SLACK`] once for any number of them |
//! | a block of class `Data` is written | 1, be it there already or not | those of the tree |
//! | a block of class `Protected` is written | 0 | 1, if it is not there yet, and those of the tree |
//! | the length becomes less | 1, if the new end is within a block of class `Data` | 0 |
//! | all else | 0 | 0 |
//!
//! Bitmaps and what is above them have their places from the start. The tree of a file takes a pair
//! for each block above those that are written which is not there yet. When the tree becomes deeper
//! it takes one for each new level.
//!
//! What there is: with *a* blocks available, *p* pairs among them, and a limit *k*
//! ([`Geometry::kept_pairs`](crate::Geometry)), any *n* pairs and *s* single blocks, taken in any
//! order, are there if *n* is at most *p* and *k*, and 2*n* + *s* at most *a*, but for
//! [`Store::slack`] pairs. For, as long as there are more pairs than *k*, there are some; and when
//! there are no more, single blocks break none while there are others. When there are no others,
//! the blocks are what counts: half of what is available is pairs, but for one run of single
//! blocks, which is as long as twins are apart, whose other halves are taken next.

use crate::error::Result;
use crate::geometry::Geometry;
use crate::store::Store;
use belay_disk::Disk;

/// Pointers in a block of a tree.
pub const FANOUT: u64 = crate::geometry::FANOUT;
/// Blocks of a tree above one another, without the leaf.
pub const LEVELS: u32 = crate::layout::DEPTH - 1;
/// Pairs that new files take at most besides one each: the tree of the inodes becomes deeper by as
/// many levels as there can be, and takes a new way. After that each block of it has room for
/// several.
pub const SLACK: u64 = 2 * LEVELS as u64;

/// Of the pairs of a store, one of so many is kept from single blocks as long as there are others.
const SHARE: u64 = 8;
/// No fewer than these.
const LEAST: u64 = 256;

impl Geometry {
    /// How many pairs are kept from single blocks as long as there are other free blocks.
    pub fn kept_pairs(&self) -> u64 {
        (self.grouped / 2 / SHARE).max(LEAST)
    }
}

impl<D: Disk> Store<D> {
    /// Pairs that are not counted on.
    pub fn slack(&self) -> u64 {
        SLACK + self.geometry.parameters.twin_offset
    }

    /// Blocks that can be taken for sure, and how many of them as pairs.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn credit(&self) -> Result<(u64, u64)> {
        let (slack, pairs) = (self.slack(), self.available_pairs()?);
        let pairs = pairs.min(self.geometry.kept_pairs()).saturating_sub(slack);
        Ok((self.available_blocks()?.saturating_sub(2 * slack), pairs))
    }

    /// Single blocks and pairs that were taken since the last checkpoint, and are in use.
    pub fn taken(&self) -> (u64, u64) {
        self.space.taken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Parameters;
    use crate::root::Identity;
    use belay_disk::{BLOCK, Block, ZEROS, check_range};
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::io;

    #[derive(Default)]
    struct Memory(RefCell<BTreeMap<u64, Block>>);

    const BLOCKS: u64 = 1500;

    impl Disk for Memory {
        fn blocks(&self) -> u64 {
            BLOCKS
        }

        fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
            check_range(BLOCKS, first, out.len())?;
            for (block, out) in (first..).zip(out.chunks_mut(BLOCK)) {
                out.copy_from_slice(self.0.borrow().get(&block).unwrap_or(&ZEROS));
            }
            Ok(())
        }

        fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
            check_range(BLOCKS, first, data.len())?;
            let blocks = (first..).zip(data.as_chunks::<BLOCK>().0.iter().copied());
            self.0.borrow_mut().extend(blocks);
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What was taken of a store, and is in use.
    #[derive(Default)]
    struct Taken {
        singles: Vec<u64>,
        pairs: Vec<u64>,
    }

    impl Taken {
        /// Takes so many of both, in an order that the numbers decide.
        fn take(
            &mut self,
            store: &mut Store<&Memory>,
            (mut singles, mut pairs): (u64, u64),
            mut order: impl FnMut(u64) -> u64,
        ) -> Result<()> {
            while singles + pairs > 0 {
                if order(singles + pairs) < pairs {
                    self.pairs.push(store.take_twins()?);
                    pairs -= 1;
                } else {
                    let (first, count) = store.take(singles.min(1 + order(300)))?;
                    self.singles.extend(first..first + count);
                    singles -= count;
                }
            }
            Ok(())
        }

        /// Frees one of so many here and there.
        fn free(
            &mut self,
            store: &mut Store<&Memory>,
            one_of: u64,
            mut order: impl FnMut(u64) -> u64,
        ) -> Result<()> {
            let mut goes = |_: &mut u64| order(one_of) == 0;
            let singles: Vec<u64> = self.singles.extract_if(.., &mut goes).collect();
            let pairs: Vec<u64> = self.pairs.extract_if(.., &mut goes).collect();
            singles.into_iter().try_for_each(|block| store.free(block))?;
            pairs.into_iter().try_for_each(|left| store.free_twins(left))
        }
    }

    proptest! {
        #![proptest_config(belay_seeds::cases!(200))]

        /// What is said to be there for sure is there, whatever was taken and freed before, in
        /// whichever order it is taken.
        #[test]
        fn credit_is_there(
            twin_offset in prop_oneof![Just(4_u64), Just(8), Just(16), Just(32)],
            groups in 8_u32..11,
            seed in 1_u64..u64::MAX,
            shares in proptest::collection::vec((0_u64..=100, 0_u64..=100, 1_u64..5), 1..12),
        ) {
            let disk = Memory::default();
            let parameters =
                Parameters { twin_offset, group_blocks: 1 << groups, ..Parameters::default() };
            let identity = Identity { volume: [1; 16], store: [2; 16], members: vec![[2; 16]] };
            let mut store = Store::format(&disk, &identity, parameters).unwrap();
            let mut state = seed;
            let mut order = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below.max(1)
            };
            let mut taken = Taken::default();
            for (of_pairs, of_blocks, one_of) in shares {
                let (blocks, pairs) = store.credit().unwrap();
                // Half of the time all that there is.
                let share = |all: u64, share: u64| all * (share * 2).min(100) / 100;
                let pairs = share(pairs.min(blocks / 2), of_pairs);
                let singles = share(blocks - 2 * pairs, of_blocks);
                let found = taken.take(&mut store, (singles, pairs), &mut order);
                prop_assert!(found.is_ok(), "{singles} and {pairs} of {blocks}: {found:?}");
                store.checkpoint().unwrap();
                taken.free(&mut store, one_of, &mut order).unwrap();
                store.checkpoint().unwrap();
            }
            // Nobody points to what was taken: it must be given back, for the check to find all
            // counted rightly.
            taken.free(&mut store, 1, &mut order).unwrap();
            store.checkpoint().unwrap();
            prop_assert_eq!(store.check().unwrap().findings, vec![]);
        }
    }
}
