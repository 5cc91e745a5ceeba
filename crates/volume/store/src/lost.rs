//! How files are changed and removed that have blocks which cannot be read.
//!
//! A damaged block keeps nobody from anything but reading what it had, or led to. An indirect block
//! that cannot be read is begun anew where it has to be changed, and its pointers say of what it
//! led to that it is lost, which is no hole. What it led to stays in use: nobody knows any more
//! which blocks those are. That this has happened is counted in the root, for a check to know where
//! they come from.

use crate::error::{Error, Result};
use crate::files::tree_of;
use crate::geometry::FANOUT;
use crate::inodes::At;
use crate::layout::{self, Kind};
use crate::nodes::Key;
use crate::pointer::Pointer;
use crate::store::Store;
use crate::tree::{Position, Tree, leaves_of};
use belay_disk::Disk;
use zerocopy::little_endian::U64;

impl<D: Disk> Store<D> {
    /// The indirect block that the pointer at `place` leads to, to be changed. One of a file that
    /// cannot be read is begun anew.
    pub(crate) fn indirect(
        &mut self,
        (key, slot): Position,
        tree: Tree,
        height: u32,
        first: u64,
        count: &mut u64,
    ) -> Result<Option<Key>> {
        let found = self.nodes.child(&self.disk, key, slot, Kind::Indirect);
        // Of inodes nobody gives up more than one must.
        if !found.as_ref().is_err_and(Error::is_unreadable) || tree.leaves == Kind::Inodes {
            return found;
        }
        let old = self.nodes.pointer(key, slot)?;
        let child = match old.is_lost() {
            true => self.make_indirect(key, slot, count)?,
            false => {
                self.give_up()?;
                self.nodes.renew(key, slot, Kind::Indirect)?
            }
        };
        for number in 0..FANOUT {
            if first.saturating_add(number * leaves_of(height)) < tree.end {
                self.nodes.set(child, layout::slot(number), Pointer::lost(old.block()))?;
            }
        }
        Ok(Some(child))
    }

    pub(crate) fn is_unreadable(&mut self, (key, slot): Position) -> bool {
        let found = self.nodes.child(&self.disk, key, slot, Kind::Indirect);
        found.is_err_and(|why| why.is_unreadable())
    }

    /// Something is given up that cannot be read.
    pub(crate) fn give_up(&mut self) -> Result<()> {
        let root = self.root_mut()?;
        root.given_up = root.given_up.get().saturating_add(1).into();
        Ok(())
    }

    /// The blocks of a tree, as far as they can be found.
    pub(crate) fn count(&mut self, tree: Tree) -> Result<u64> {
        match tree.depth.checked_sub(1) {
            None => Ok(0),
            Some(height) => self.count_below((tree.key, tree.slot), height),
        }
    }

    fn count_below(&mut self, (key, slot): Position, height: u32) -> Result<u64> {
        let pointer = self.nodes.pointer(key, slot)?;
        if pointer.is_null() || pointer.is_lost() {
            return Ok(0);
        }
        let mut count = 1;
        if height == 0 {
            return Ok(count);
        }
        let child = match self.nodes.child(&self.disk, key, slot, Kind::Indirect) {
            Err(why) if why.is_unreadable() => None,
            child => child?,
        };
        if let Some(child) = child {
            for number in 0..FANOUT {
                count += self.count_below((child, layout::slot(number)), height - 1)?;
            }
            self.nodes.release(child);
        }
        Ok(count)
    }

    /// What a block of a file was is lost, and it is freed, as its tree says which one it is; gives
    /// how many blocks it takes less.
    pub(crate) fn lose(&mut self, mut tree: Tree, number: u64) -> Result<u64> {
        let (key, slot) = self.make_place(&mut tree, number, &mut 0)?;
        let old = self.nodes.pointer(key, slot)?;
        if old.is_null() || old.is_lost() {
            return Ok(0);
        }
        self.nodes.remove(key, slot)?;
        self.nodes.set(key, slot, Pointer::lost(old.block()))?;
        match old.is_twinned() {
            true => self.free_twins(old.block())?,
            false => self.free(old.block())?,
        }
        Ok(1)
    }

    /// Counts the blocks of a file anew, if something was given up since so much was.
    pub(crate) fn count_anew(&mut self, at: At, given_up: U64) -> Result<()> {
        if self.root()?.given_up != given_up {
            let tree = tree_of(at, &layout::read(self.nodes.bytes(at.key)?, at.offset));
            let blocks = self.count(tree)?;
            self.inode_mut(at)?.blocks = blocks.into();
        }
        Ok(())
    }
}
