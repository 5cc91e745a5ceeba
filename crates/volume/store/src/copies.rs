//! What is in the two places of the root of a checkpoint. One whole copy is enough; what is in the
//! other place tells whether a power failure came between the two, or something is wrong with the
//! disk.

use crate::blocks;
use crate::error::{Error, Result};
use crate::geometry::INDEXES;
use crate::layout::{self, MAGIC, Root};
use crate::nodes::ROOT;
use crate::pointer::Pointer;
use crate::store::Store;
use belay_disk::{Block, Disk};
use std::mem::offset_of;

/// What is in a place for a root.
#[derive(Debug)]
pub enum RootCopy {
    /// The root.
    Whole,
    /// That of an earlier checkpoint: the power failed before this one was written.
    Earlier(u64),
    /// Something that differs by whole sectors: the power failed while it was written, if the disk
    /// is not damaged.
    CutOff,
    /// Something that differs by a few bytes, as no power failure leaves it.
    Damaged,
    /// The disk cannot read it.
    Unreadable(Error),
}

/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// Two roots differ in the checksums of pointers, and in their own: a sector that differs in more
/// than in where the same content is differs in more bytes than this.
const FEW: usize = 4;

impl<D: Disk> Store<D> {
    /// What is in the two places for the root of the last checkpoint, each with its block.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn root_copies(&self) -> Result<Vec<(u64, RootCopy)>> {
        let root = self.root()?;
        let (epoch, checksum) = (root.epoch.get(), root.checksum.get());
        let read = self.geometry.root_places(epoch).map(|at| (at, blocks::read(&self.disk, at)));
        let is_it = |block: &Block| {
            let root: Root = layout::read(block, 0);
            layout::root_checksum(block).0 == checksum && root.checksum.get() == checksum
        };
        let whole = read.iter().filter_map(|(_, block)| block.as_ref().ok());
        let whole = whole.copied().find(|block| is_it(block));
        let copies = read.into_iter().map(|(at, block)| {
            let copy = match block {
                Err(why) => RootCopy::Unreadable(why),
                Ok(block) if is_it(&block) => RootCopy::Whole,
                Ok(block) => what_else(&block, whole.as_ref(), epoch),
            };
            (at, copy)
        });
        Ok(copies.collect())
    }

    /// The bytes of the root that is in use.
    ///
    /// # Errors
    /// As above.
    pub fn root_block(&self) -> Result<&Block> {
        self.nodes.bytes(ROOT)
    }
}

fn what_else(block: &Block, whole: Option<&Block>, epoch: u64) -> RootCopy {
    let root: Root = layout::read(block, 0);
    let is_root = root.magic == MAGIC && layout::root_checksum(block).0 == root.checksum.get();
    if is_root && root.epoch.get() < epoch {
        return RootCopy::Earlier(root.epoch.get());
    }
    let Some(whole) = whole else { return RootCopy::CutOff };
    let block = &with_places_of(whole, *block);
    let differ = |(one, other): (&[u8], &[u8])| {
        one.iter().zip(other).filter(|(byte, other)| byte != other).count()
    };
    let mut sectors = block.chunks(SECTOR).zip(whole.chunks(SECTOR)).map(differ);
    match sectors.any(|count| (1..=FEW).contains(&count)) {
        true => RootCopy::Damaged,
        false => RootCopy::CutOff,
    }
}

/// A root, with the pointers of another one where these lead to the same content in another place.
/// Such pointers differ in a bit or two, and a power failure may leave one of them: a block was
/// changed, and was as before at the next checkpoint.
fn with_places_of(other: &Block, mut block: Block) -> Block {
    let first = offset_of!(Root, indexes);
    let end = first + size_of::<[Pointer; INDEXES as usize]>();
    for at in (first..end).step_by(Pointer::SIZE) {
        let place = Pointer::read(other, at);
        if place.is_alike(Pointer::read(&block, at)) {
            place.write(&mut block, at);
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointer::Checksum;
    use belay_disk::{BLOCK, ZEROS};

    #[test]
    fn a_block_in_its_other_place_is_no_damage_and_a_flipped_bit_is_one() {
        let at = offset_of!(Root, indexes) + 3 * Pointer::SIZE;
        let mut whole = ZEROS;
        let pointer = Pointer::twins(70).with_checksum(Checksum(0x1234_5678_9abc_def0));
        pointer.turned().write(&mut whole, at);
        let mut torn = whole;
        pointer.stable().write(&mut torn, at);
        assert!(matches!(what_else(&torn, Some(&whole), 6), RootCopy::CutOff));
        // A sector of the root before, in which much differs.
        let mut torn = whole;
        torn[..SECTOR].fill(7);
        assert!(matches!(what_else(&torn, Some(&whole), 6), RootCopy::CutOff));
        // Any bit but those two of pointers.
        for byte in [0, at, at + Pointer::SIZE - 1, BLOCK - 1] {
            let mut flipped = whole;
            flipped[byte] ^= 1;
            assert!(matches!(what_else(&flipped, Some(&whole), 6), RootCopy::Damaged), "{byte}");
        }
    }
}
