//! What a block is for: by its place, or by what points to it. Nothing is changed, and what cannot
//! be read is passed by.

use crate::error::Result;
use crate::file_id::FileId;
use crate::geometry::{BITS, FANOUT, Geometry};
use crate::inodes::At;
use crate::layout::{self, INODES, Inode, InodeFlags, Kind};
use crate::nodes::{Key, ROOT};
use crate::pointer::{Checksum, Pointer};
use crate::space;
use crate::store::Store;
use crate::tree::{Position, Tree, leaves_of};
use belay_disk::{Block, Disk};
use roaring::RoaringTreemap;

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing, ever.
    Reserved,
    /// The root of even checkpoints, or of odd ones.
    Root {
        /// Which of them.
        is_odd: bool,
    },
    /// Points to the blocks of 256 groups.
    Index(u64),
    /// The block of a group.
    Group(u64),
    /// The bits of a part of a group.
    Bitmap {
        /// Which group.
        group: u64,
        /// Which bitmap block of it.
        number: u64,
        /// The first block that it has a bit for.
        first: u64,
    },
    /// A block of the resynchronization log.
    Resynchronization(u64),
    /// A block of the intent log.
    Intents {
        /// Which of the two areas.
        area: u64,
        /// Which block of it.
        number: u64,
    },
    /// Inodes, from this one on.
    Inodes(u64),
    /// Points to blocks of a file, or to blocks of inodes.
    Indirect {
        /// Which file.
        file: Option<FileId>,
        /// The first block of it that this leads to, or the first inode.
        first: u64,
    },
    /// A block of a file.
    Data {
        /// Which file.
        file: FileId,
        /// What the layer above calls it.
        owner: u64,
        /// Which block of it.
        number: u64,
    },
    /// It is free.
    Free,
    /// It is marked as in use, and nothing that can be read leads to it.
    Lost,
}

/// A block, and what points to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is for.
    pub role: Role,
    /// What points to it, if that can be told.
    pub pointer: Option<Pointer>,
}

impl Found {
    /// Which of its twins the block is that was asked for, if it has any: `left` or `right`.
    pub fn twin(&self, block: u64) -> Option<&'static str> {
        let pointer = self.pointer.filter(|pointer| pointer.is_twinned())?;
        Some(if pointer.block() == block { "left" } else { "right" })
    }

    /// Whether it is the one of the twins that counts.
    pub fn is_current(&self, block: u64) -> bool {
        self.pointer.is_some_and(|pointer| {
            !pointer.is_twinned() || pointer.is_right() == (pointer.block() != block)
        })
    }
}

impl<D: Disk> Store<D> {
    /// Where everything is.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The checksum that a block of this store has.
    pub fn checksum_of(&self, block: &Block) -> Checksum {
        Checksum::of(self.seed, block)
    }

    /// The inode with that number.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn inode_with(&mut self, number: u64) -> Result<Option<Inode>> {
        Ok(self.inode_at(number)?.map(|(_, inode)| inode))
    }

    /// What a block is for.
    ///
    /// # Errors
    /// None but that of the root.
    pub fn role_of(&mut self, block: u64) -> Result<Found> {
        if let Some(found) = self.fixed_role(block)? {
            return Ok(found);
        }
        let root = *self.root()?;
        let within = |first: u64, count: u64| block.checked_sub(first).filter(|at| *at < count);
        if let Some(at) = within(root.log_first.get(), root.log_blocks.get()) {
            return Ok(Found { role: Role::Resynchronization(at), pointer: None });
        }
        if let Some(at) = within(root.intent_first.get(), root.intent_blocks.get()) {
            let half = (root.intent_blocks.get() / 2).max(1);
            let role = Role::Intents { area: at / half, number: at % half };
            return Ok(Found { role, pointer: None });
        }
        let mut search = Search { store: self, target: block, seen: RoaringTreemap::new() };
        let tree = search.store.inode_tree()?;
        if let Some(found) = search.walk(tree, None) {
            return Ok(found);
        }
        let role = if self.is_marked(block) { Role::Lost } else { Role::Free };
        Ok(Found { role, pointer: None })
    }

    /// What a block is for by its place alone.
    fn fixed_role(&mut self, block: u64) -> Result<Option<Found>> {
        let geometry = self.geometry;
        let found = |role, pointer| Ok(Some(Found { role, pointer }));
        for epoch in 0..2 {
            if geometry.root_places(epoch).contains(&block) {
                return found(Role::Root { is_odd: epoch == 1 }, None);
            }
        }
        if !geometry.is_reserved(block) {
            return Ok(None);
        }
        if block >= geometry.grouped {
            return found(Role::Reserved, None);
        }
        let group = geometry.group_of(block);
        let (index, within) = (group / FANOUT, group % FANOUT);
        let is = |left: u64| geometry.twins(left).contains(&block);
        let at_index = self.nodes.pointer(ROOT, layout::index_slot(index))?;
        if within == 0 && is(geometry.index_block(index)) {
            return found(Role::Index(index), Some(at_index));
        }
        let index_key = self.look((ROOT, layout::index_slot(index)), Kind::Index);
        let at_group = index_key.map(|key| (key, layout::slot(within)));
        if is(geometry.group_block(group)) {
            return found(Role::Group(group), self.pointer_at(at_group));
        }
        let group_key = at_group.and_then(|place| self.look(place, Kind::Group));
        for number in 0..geometry.bitmaps() {
            if is(geometry.bitmap_block(group, number)) {
                let at = group_key.map(|key| (key, layout::bitmap_slot(number)));
                let first = group * geometry.parameters.group_blocks + number * BITS;
                return found(Role::Bitmap { group, number, first }, self.pointer_at(at));
            }
        }
        found(Role::Reserved, None)
    }

    /// The block that a pointer leads to, if it can be read.
    fn look(&mut self, (key, slot): Position, kind: Kind) -> Option<Key> {
        self.nodes.child(&self.disk, key, slot, kind).ok().flatten()
    }

    fn pointer_at(&self, place: Option<Position>) -> Option<Pointer> {
        let (key, slot) = place?;
        self.nodes.pointer(key, slot).ok()
    }

    /// Whether a block that is for files is marked as in use.
    fn is_marked(&mut self, block: u64) -> bool {
        let group = self.geometry.group_of(block);
        let within = block % self.geometry.parameters.group_blocks;
        let way = [
            (layout::index_slot(group / FANOUT), Kind::Index),
            (layout::slot(group % FANOUT), Kind::Group),
            (layout::bitmap_slot(within / BITS), Kind::Bitmap),
        ];
        let mut key = ROOT;
        for (slot, kind) in way {
            match self.look((key, slot), kind) {
                Some(child) => key = child,
                None => return false,
            }
        }
        self.nodes.bytes(key).is_ok_and(|bytes| space::get(bytes, within % BITS))
    }
}

/// Looks for what points to a block.
struct Search<'s, D> {
    store: &'s mut Store<D>,
    target: u64,
    seen: RoaringTreemap,
}

impl<D: Disk> Search<'_, D> {
    fn walk(&mut self, tree: Tree, file: Option<(FileId, u64)>) -> Option<Found> {
        let height = tree.depth.checked_sub(1)?;
        self.walk_below((tree.key, tree.slot), tree, height, 0, file)
    }

    fn walk_below(
        &mut self,
        place: Position,
        tree: Tree,
        height: u32,
        first: u64,
        file: Option<(FileId, u64)>,
    ) -> Option<Found> {
        let pointer = self
            .store
            .pointer_at(Some(place))
            .filter(|pointer| !pointer.is_null() && !pointer.is_lost())?;
        let [left, right] = self.store.geometry.twins(pointer.block());
        if left == self.target || pointer.is_twinned() && right == self.target {
            let role = match file {
                None if height == 0 => Role::Inodes(first * INODES),
                Some((file, owner)) if height == 0 => Role::Data { file, owner, number: first },
                None => Role::Indirect { file: None, first: first * INODES },
                Some((file, _)) => Role::Indirect { file: Some(file), first },
            };
            return Some(Found { role, pointer: Some(pointer) });
        }
        let kind = if height > 0 { Kind::Indirect } else { tree.leaves };
        if height == 0 && file.is_some() || !self.seen.insert(pointer.block()) {
            return None;
        }
        let child = self.store.look(place, kind)?;
        let found = match height {
            0 => (0..INODES).find_map(|within| self.inode(child, first, within)),
            _ => (0..FANOUT).find_map(|number| {
                let start = first + number * leaves_of(height);
                self.walk_below((child, layout::slot(number)), tree, height - 1, start, file)
            }),
        };
        self.store.nodes.release(child);
        found
    }

    fn inode(&mut self, key: Key, block: u64, within: u64) -> Option<Found> {
        let at = At { key, offset: layout::inode_offset(within) };
        let inode: Inode = layout::read(self.store.nodes.bytes(key).ok()?, at.offset);
        if !inode.flags().contains(InodeFlags::USED) {
            return None;
        }
        let file = FileId::new(block * INODES + within, inode.generation.get());
        let tree = crate::files::tree_of(at, &inode);
        self.walk(tree, Some((file, inode.owner.get())))
    }
}
