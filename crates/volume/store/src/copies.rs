//! What is in the two places of the root of a checkpoint. One whole copy is enough; what is in the other place tells whether a power
//! failure came between the two, or something is wrong with the disk.

use crate::blocks;
use crate::error::{Error, Result};
use crate::layout::{self, MAGIC, Root};
use crate::nodes::ROOT;
use crate::store::Store;
use belay_disk::{Block, Disk};

/// What is in a place for a root.
#[derive(Debug)]
pub enum RootCopy {
    /// The root.
    Whole,
    /// That of an earlier checkpoint: the power failed before this one was written.
    Earlier(u64),
    /// Something that differs by whole sectors: the power failed while it was written, if the disk is not damaged.
    CutOff,
    /// Something that differs by a few bytes, as no power failure leaves it.
    Damaged,
    /// The disk cannot read it.
    Unreadable(Error),
}

/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// Two roots differ in the checksums of pointers, and in their own: a sector that differs at all differs in more bytes than this.
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
    let differ = |(one, other): (&[u8], &[u8])| {
        one.iter().zip(other).filter(|(byte, other)| byte != other).count()
    };
    let mut sectors = block.chunks(SECTOR).zip(whole.chunks(SECTOR)).map(differ);
    match sectors.any(|count| (1..=FEW).contains(&count)) {
        true => RootCopy::Damaged,
        false => RootCopy::CutOff,
    }
}
