//! How a file is found, made and removed.
//!
//! Inodes are in the blocks of a tree of their own, 16 in each, and are used again in the reverse
//! order of their removal.

use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::geometry::FANOUT;
use crate::layout::{self, INODE_TREE, INODES, Inode, InodeFlags, Kind, Root};
use crate::nodes::{Key, ROOT};
use crate::store::Store;
use crate::tree::Tree;
use belay_disk::Disk;
use zerocopy::FromZeros;

/// How the data of a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Each block has twins: what it was at the last checkpoint stays beside it. For the metadata
    /// of the layers above, which change in small pieces and must always find room (Loris IV-A).
    Protected,
    /// A block that belongs to the last checkpoint is replaced by another one when it is written.
    Data,
}

/// Where an inode is.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub(crate) key: Key,
    pub(crate) offset: usize,
}

impl<D: Disk> Store<D> {
    pub(crate) fn root(&self) -> Result<&Root> {
        self.nodes.record(ROOT, 0)
    }

    /// The root, to be changed in its place: what points to other blocks changes by itself.
    pub(crate) fn root_mut(&mut self) -> Result<&mut Root> {
        self.nodes.change_record(ROOT, 0)
    }

    pub(crate) fn inode_tree(&self) -> Result<Tree> {
        let depth = self.root()?.inode_depth.get();
        Ok(Tree { key: ROOT, slot: INODE_TREE, depth, leaves: Kind::Inodes, end: u64::MAX })
    }

    /// The inode with that number, and where it is; `None` if there is none.
    pub(crate) fn inode_at(&mut self, number: u64) -> Result<Option<(At, Inode)>> {
        if number >= self.root()?.inodes.get() {
            return Ok(None);
        }
        let tree = self.inode_tree()?;
        let Some((key, slot)) = self.place_of(tree, number / INODES)? else { return Ok(None) };
        let Some(key) = self.nodes.child(&self.disk, key, slot, Kind::Inodes)? else {
            return Ok(None);
        };
        let at = At { key, offset: layout::inode_offset(number % INODES) };
        Ok(Some((at, layout::read(self.nodes.bytes(key)?, at.offset))))
    }

    /// The inode of a file.
    pub(crate) fn inode(&mut self, file: FileId) -> Result<(At, Inode)> {
        let found = self.inode_at(file.inode())?;
        let is_it = |inode: &Inode| {
            inode.flags().contains(InodeFlags::USED) && inode.generation.get() == file.generation()
        };
        found.filter(|(_, inode)| is_it(inode)).ok_or(Error::NoFile(file))
    }

    /// The number of the file with that inode, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn file_with(&mut self, number: u64) -> Result<Option<FileId>> {
        let found = self.inode_at(number)?;
        let used = found.filter(|(_, inode)| inode.flags().contains(InodeFlags::USED));
        Ok(used.map(|(_, inode)| FileId::new(number, inode.generation.get())))
    }

    /// An inode, to be changed in its place. Its tree changes by itself.
    pub(crate) fn inode_mut(&mut self, at: At) -> Result<&mut Inode> {
        self.nodes.change_record(at.key, at.offset)
    }

    /// An inode that is free, with a generation that it has not had for long.
    pub(crate) fn new_inode(&mut self) -> Result<(FileId, At)> {
        if let Some(number) = self.root()?.free_inode.get().checked_sub(1) {
            let wrong = Error::Damaged { what: "the list of free inodes", why: "it leads astray" };
            match self.inode_at(number) {
                Ok(Some((at, inode))) if !inode.flags().contains(InodeFlags::USED) => {
                    self.root_mut()?.free_inode = inode.next_free;
                    let generation = (inode.generation.get() + 1) % FileId::GENERATIONS;
                    return Ok((FileId::new(number, generation), at));
                }
                // The list ends here: those behind are not used again.
                Err(why) if why.is_unreadable() => {
                    self.give_up()?;
                    self.root_mut()?.free_inode = 0.into();
                }
                Ok(_) => return Err(wrong),
                Err(why) => return Err(why),
            }
        }
        // One indirect block leads to so many.
        for _ in 0..=FANOUT {
            match self.next_inode() {
                Err(why) if why.is_unreadable() => {
                    self.give_up()?;
                    let root = self.root_mut()?;
                    root.inodes = (root.inodes.get() / INODES + 1).saturating_mul(INODES).into();
                }
                made => return made,
            }
        }
        self.next_inode()
    }

    /// An inode that was never in use.
    fn next_inode(&mut self) -> Result<(FileId, At)> {
        let number = self.root()?.inodes.get();
        if number >= 1 << FileId::INODE_BITS {
            return Err(Error::NoSpace);
        }
        let mut tree = self.inode_tree()?;
        let placed = self.make_place(&mut tree, number / INODES, &mut 0);
        // It may be deeper, and have found no room then.
        self.root_mut()?.inode_depth = tree.depth.into();
        let (key, slot) = placed?;
        let key = match self.nodes.child(&self.disk, key, slot, Kind::Inodes)? {
            Some(key) => key,
            None => {
                let left = self.take_twins()?;
                self.nodes.make(key, slot, Kind::Inodes, left)?
            }
        };
        self.root_mut()?.inodes = (number + 1).into();
        Ok((FileId::new(number, 0), At { key, offset: layout::inode_offset(number % INODES) }))
    }

    /// Gives an inode back, whose tree is empty.
    pub(crate) fn free_inode(&mut self, file: FileId, at: At) -> Result<()> {
        let mut inode = Inode::new_zeroed();
        inode.generation = file.generation().into();
        inode.next_free = self.root()?.free_inode;
        *self.inode_mut(at)? = inode;
        self.root_mut()?.free_inode = (file.inode() + 1).into();
        Ok(())
    }
}
