//! Where on the disk the blocks with fixed places are.
//!
//! A disk is divided into groups of equal size; the last one may be smaller. Each has, from block
//! 64 of it on, the twins of its group block and of its bitmap blocks, and every 256th group those
//! of an index block before them. The rest is for files. Block 0 is never written to: a label of
//! somebody else's may be there. The root has two places at the start and two at the end.

use crate::error::{Error, Result};
use belay_disk::BLOCK;
use std::ops::Range;

/// Bits in a bitmap block.
pub const BITS: u64 = BLOCK as u64 * 8;
/// Pointers in an index block or an indirect block.
pub const FANOUT: u64 = (BLOCK / crate::pointer::Pointer::SIZE) as u64;
/// Index blocks that a root can point to.
pub const INDEXES: u64 = 64;
/// Where in a group its own blocks begin.
const FIXED: u64 = 64;
/// What is left alone at the start of the disk, and for roots.
const HEAD: u64 = 8;
/// What is kept for roots at its end.
const TAIL: u64 = 2;
/// The usual size of a group: 1 GiB.
const GROUP: u64 = (1 << 30) / BLOCK as u64;
/// The smallest one.
const SMALLEST: u64 = 256;

/// What is decided when a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// How many blocks apart the twins of a block are: 4, 8, 16 or 32. With 0 they are one block,
    /// which is written in place: a baseline for comparison, which does not survive crashes (Loris
    /// VII-A).
    pub twin_offset: u64,
    /// Blocks of a group: a power of two from 256 to 262,144.
    pub group_blocks: u64,
    /// Whether a block that is freed may be used again at once. As above: for comparison.
    pub frees_at_once: bool,
    /// Where data of class [`Data`](crate::Class::Data) go when a block is written that belongs to
    /// the last checkpoint.
    pub data: DataMode,
}

/// Where data go when a block is written that belongs to the last checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataMode {
    /// To another block: a checkpoint has all data, and no power failure tears anything.
    #[default]
    OutOfPlace,
    /// To the same block, when the resynchronization log has its new checksum (Loris V-C): after a
    /// power failure the block is what it was or what it was to be; one that was torn is lost.
    InPlace,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            twin_offset: 16,
            group_blocks: GROUP,
            frees_at_once: false,
            data: DataMode::OutOfPlace,
        }
    }
}

impl Parameters {
    /// The same for a small disk, with small groups.
    #[must_use]
    pub fn small(self) -> Self {
        Self { group_blocks: 1024, ..self }
    }
}

/// Where everything is on a disk of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the disk, but what is more than a store can use.
    pub blocks: u64,
    /// Those of them that are in groups: a last group without room for its own blocks is none.
    pub grouped: u64,
    /// How it was made.
    pub parameters: Parameters,
}

impl Geometry {
    /// That of a disk with so many blocks.
    ///
    /// # Errors
    /// If that is too small, or the parameters are none that can be.
    pub fn new(blocks: u64, parameters: Parameters) -> Result<Self> {
        let Parameters { twin_offset, group_blocks, .. } = parameters;
        let bad = |what: &str| Err(Error::NoStore(what.to_owned()));
        if ![0, 4, 8, 16, 32].contains(&twin_offset) {
            return bad("the twin offset is none of 0, 4, 8, 16 and 32");
        }
        if !group_blocks.is_power_of_two() || !(SMALLEST..=GROUP).contains(&group_blocks) {
            return bad("the size of the groups is none that can be");
        }
        if blocks < SMALLEST {
            let least = SMALLEST * BLOCK as u64 / 1024;
            return bad(&format!("the disk is too small: a store takes at least {least} KiB"));
        }
        let most = group_blocks * FANOUT * INDEXES;
        let blocks = blocks.min(most);
        let mut this = Self { blocks, grouped: blocks, parameters };
        let rest = blocks % group_blocks;
        if rest < FIXED + this.fixed_length() + HEAD {
            this.grouped -= rest;
        }
        Ok(this)
    }

    /// How many groups there are.
    pub fn groups(&self) -> u64 {
        self.grouped.div_ceil(self.parameters.group_blocks)
    }

    /// How many index blocks there are.
    pub fn indexes(&self) -> u64 {
        self.groups().div_ceil(FANOUT)
    }

    /// How many bitmap blocks a group has.
    pub fn bitmaps(&self) -> u64 {
        self.parameters.group_blocks.div_ceil(BITS)
    }

    /// The group that a block is in.
    pub fn group_of(&self, block: u64) -> u64 {
        block / self.parameters.group_blocks
    }

    /// The first block of a group, and the one behind its last.
    pub fn range_of(&self, group: u64) -> (u64, u64) {
        let size = self.parameters.group_blocks;
        (group * size, ((group + 1) * size).min(self.grouped))
    }

    /// The two places for the root of an epoch. Those of the epoch before are the other two.
    pub fn root_places(&self, epoch: u64) -> [u64; 2] {
        let odd = epoch % 2;
        [1 + odd, self.blocks - 1 - odd]
    }

    /// The left twin of an index block.
    pub fn index_block(&self, index: u64) -> u64 {
        self.fixed(index * FANOUT, 0)
    }

    /// The left twin of the block of a group.
    pub fn group_block(&self, group: u64) -> u64 {
        self.fixed(group, 1)
    }

    /// The left twin of a bitmap block of a group.
    pub fn bitmap_block(&self, group: u64, bitmap: u64) -> u64 {
        self.fixed(group, 2 + bitmap)
    }

    fn fixed(&self, group: u64, number: u64) -> u64 {
        let offset = self.parameters.twin_offset;
        let within = match offset {
            0 => number,
            _ => number / offset * 2 * offset + number % offset,
        };
        group * self.parameters.group_blocks + FIXED + within
    }

    /// How many blocks the blocks with fixed places of a group take.
    fn fixed_length(&self) -> u64 {
        let number = 2 + self.bitmaps();
        match self.parameters.twin_offset {
            0 => number,
            offset => number.div_ceil(offset) * 2 * offset,
        }
    }

    /// Whether a block belongs to no file ever.
    pub fn is_reserved(&self, block: u64) -> bool {
        let within = block % self.parameters.group_blocks;
        let fixed = (FIXED..FIXED + self.fixed_length()).contains(&within);
        fixed || block < HEAD || block >= self.blocks - TAIL || block >= self.grouped
    }

    /// Which bits of a bitmap block are set whatever files there are, apart from each other: those
    /// of blocks that belong to no file, and those behind the end of the group.
    pub fn own_bits(&self, group: u64, bitmap: u64) -> [Range<u64>; 3] {
        let (start, end) = self.range_of(group);
        let first = start + bitmap * BITS;
        let own = start + FIXED..start + FIXED + self.fixed_length();
        [0..HEAD, own, end.min(self.blocks - TAIL)..first + BITS].map(|range| {
            let bit = |block: u64| block.saturating_sub(first).min(BITS);
            bit(range.start)..bit(range.end)
        })
    }

    /// How many blocks of a group are for files.
    pub fn capacity_of(&self, group: u64) -> u64 {
        let (start, end) = self.range_of(group);
        let head = HEAD.saturating_sub(start).min(end - start);
        let tail = (end + TAIL).saturating_sub(self.blocks.max(start)).min(end - start);
        (end - start).saturating_sub(self.fixed_length() + head + tail)
    }

    /// How many blocks there are for files.
    pub fn capacity(&self) -> u64 {
        (0..self.groups()).map(|group| self.capacity_of(group)).sum()
    }

    /// How many pairs of places for twins there are for files.
    pub fn pairs(&self) -> u64 {
        (0..self.groups()).map(|group| self.pairs_of(group)).sum()
    }

    /// How many of them are in a group.
    fn pairs_of(&self, group: u64) -> u64 {
        let (start, end) = self.range_of(group);
        let is_pair = |block: &u64| {
            let partner = self.partner(*block);
            partner >= *block && !self.is_reserved(*block) && !self.is_reserved(partner)
        };
        // Between the group's own blocks and its end nothing is reserved, and all pairs are whole.
        let first = (start + FIXED + self.fixed_length()).min(end);
        let last = first.max((end - end % FIXED).saturating_sub(FIXED));
        let between =
            if self.parameters.twin_offset == 0 { last - first } else { (last - first) / 2 };
        let others = (start..first).chain(last..end).filter(is_pair).count();
        between + others as u64
    }

    /// The other place of the twins of which a block can be one.
    pub fn partner(&self, block: u64) -> u64 {
        match self.can_be_left(block) {
            true => block + self.parameters.twin_offset,
            false => block - self.parameters.twin_offset,
        }
    }

    /// Whether `block` can be the left one of two places: both are in one group.
    pub fn can_be_left(&self, block: u64) -> bool {
        let offset = self.parameters.twin_offset;
        offset == 0 || block % (2 * offset) < offset
    }

    /// The places of the block whose left one this is.
    pub fn twins(&self, left: u64) -> [u64; 2] {
        [left, left + self.parameters.twin_offset]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = Geometry> {
        let sizes = [256, 300, 1024, 1100, 4096, 5000, 300_000];
        let groups = [256, 1024, 262_144];
        let each = move |twin_offset| {
            sizes.into_iter().flat_map(move |blocks| {
                groups.into_iter().filter_map(move |group_blocks| {
                    let parameters =
                        Parameters { twin_offset, group_blocks, ..Parameters::default() };
                    Geometry::new(blocks, parameters).ok()
                })
            })
        };
        [0, 4, 8, 16, 32].into_iter().flat_map(each)
    }

    #[test]
    fn blocks_with_fixed_places_are_reserved_and_apart() {
        let mut count = 0;
        for geometry in all() {
            let mut seen = BTreeSet::new();
            let mut add = |block: u64| {
                assert!(
                    block < geometry.blocks && geometry.is_reserved(block),
                    "{geometry:?} {block}"
                );
                assert!(seen.insert(block), "{geometry:?}: {block} twice");
            };
            (0..2).flat_map(|epoch| geometry.root_places(epoch)).for_each(&mut add);
            let is_one = geometry.parameters.twin_offset == 0;
            let mut add_twins = |left: u64| {
                assert!(geometry.can_be_left(left));
                let twins = geometry.twins(left);
                twins.into_iter().take(if is_one { 1 } else { 2 }).for_each(&mut add);
            };
            (0..geometry.indexes()).for_each(|index| add_twins(geometry.index_block(index)));
            for group in 0..geometry.groups() {
                add_twins(geometry.group_block(group));
                let bitmaps = 0..geometry.bitmaps();
                bitmaps.for_each(|bitmap| add_twins(geometry.bitmap_block(group, bitmap)));
            }
            count += 1;
        }
        assert!(count > 50);
    }

    #[test]
    fn capacity_and_pairs_are_what_is_not_reserved() {
        for geometry in all() {
            for group in 0..geometry.groups() {
                let (start, end) = geometry.range_of(group);
                let free = (start..end).filter(|block| !geometry.is_reserved(*block)).count();
                assert_eq!(free as u64, geometry.capacity_of(group), "{geometry:?} {group}");
            }
            assert!(geometry.capacity() > 0);
            let free = |block: u64| !geometry.is_reserved(block);
            let is_pair = |left: &u64| {
                geometry.can_be_left(*left) && geometry.twins(*left).into_iter().all(free)
            };
            let pairs = (0..geometry.grouped).filter(is_pair).count();
            assert_eq!(pairs as u64, geometry.pairs(), "{geometry:?}");
        }
    }

    #[test]
    fn own_bits_are_those_of_what_is_reserved() {
        for geometry in all() {
            for (group, bitmap) in (0..geometry.groups())
                .flat_map(|group| (0..geometry.bitmaps()).map(move |bitmap| (group, bitmap)))
            {
                let own = geometry.own_bits(group, bitmap);
                let (start, end) = geometry.range_of(group);
                for bit in 0..BITS {
                    let block = start + bitmap * BITS + bit;
                    let is_own = block >= end || geometry.is_reserved(block);
                    let count = own.iter().filter(|range| range.contains(&bit)).count();
                    assert_eq!(count, usize::from(is_own), "{geometry:?}: {group} {bitmap} {bit}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |blocks, twin_offset, group_blocks| {
            Geometry::new(blocks, Parameters { twin_offset, group_blocks, ..Parameters::default() })
        };
        assert!(new(255, 16, 1024).is_err());
        assert!(new(4096, 5, 1024).is_err());
        assert!(new(4096, 16, 1000).is_err());
        assert!(new(4096, 16, 1 << 19).is_err());
        assert!(new(4096, 16, 128).is_err());
    }
}
