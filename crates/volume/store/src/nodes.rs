//! The metadata blocks in memory: a tree whose root is the root block, in which each block is known by its left twin.
//!
//! A block is *modified* if it was changed since the last checkpoint. At its first change it turns to its other twin, so that the one that the
//! checkpoint consists of stays what it is; and so does the block that points to it, up to the root. A block is *dirty* if memory is ahead of
//! the disk. Checksums are put into the blocks above when dirty blocks are written ([`Nodes::write`]).
//!
//! Invariants: a block in memory has the one that points to it in memory; one above a dirty block is dirty, and one above a modified block
//! is modified. That is why the modified bits in a block that is not modified itself mean nothing: they are cleared when it turns.

use crate::blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::{self, Kind};
use crate::pointer::{Checksum, Pointer};
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a metadata block is known by: its left twin.
pub type Key = u64;

/// What the root is known by.
pub const ROOT: Key = 0;

/// A metadata block in memory.
#[derive(Debug)]
struct Node {
    kind: Kind,
    bytes: Box<Block>,
    /// The block that points to it, and where in that.
    parent: (Key, usize),
    /// The epoch in which it was modified last.
    epoch: u64,
    dirty: bool,
    /// How many blocks below it are in memory.
    children: u32,
    used: u64,
}

/// The metadata blocks in memory.
#[derive(Debug)]
pub struct Nodes {
    nodes: BTreeMap<Key, Node>,
    /// The epoch that is under way: that of the next checkpoint.
    epoch: u64,
    seed: u64,
    geometry: Geometry,
    /// How many blocks may be in memory when nothing is under way.
    limit: usize,
    clock: u64,
    /// How often a block was changed.
    changes: u64,
}

impl Nodes {
    /// With nothing but the root of the last checkpoint.
    pub fn new(root: Box<Block>, epoch: u64, seed: u64, geometry: Geometry, limit: usize) -> Self {
        let root = Node {
            kind: Kind::Root,
            bytes: root,
            parent: (ROOT, 0),
            epoch: 0,
            dirty: false,
            children: 0,
            used: 0,
        };
        let nodes = BTreeMap::from([(ROOT, root)]);
        Self { nodes, epoch, seed, geometry, limit, clock: 0, changes: 0 }
    }

    /// Keeps no more than so many blocks in memory when nothing is under way.
    pub fn limit(&mut self, blocks: usize) {
        self.limit = blocks;
    }

    /// The epoch that is under way.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How often a block was changed: what this is before and after tells whether anything was.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    fn node(&self, key: Key) -> Result<&Node> {
        self.nodes.get(&key).ok_or(LOST)
    }

    /// The content of a block.
    ///
    /// # Errors
    /// If it is not in memory, which is a mistake of this crate's.
    pub fn bytes(&self, key: Key) -> Result<&Block> {
        Ok(&self.node(key)?.bytes)
    }

    /// A record of a block.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn record<T>(&self, key: Key, at: usize) -> Result<&T>
    where
        T: FromBytes + Unaligned + Immutable + KnownLayout,
    {
        layout::view(self.bytes(key)?, at).ok_or(LOST)
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn change_record<T>(&mut self, key: Key, at: usize) -> Result<&mut T>
    where
        T: FromBytes + IntoBytes + Unaligned + KnownLayout,
    {
        layout::view_mut(self.change(key)?, at).ok_or(LOST)
    }

    /// The pointer at `slot` of a block.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn pointer(&self, key: Key, slot: usize) -> Result<Pointer> {
        Ok(Pointer::read(self.bytes(key)?, slot))
    }

    /// Whether what the pointer at `slot` of a block leads to was written since the last checkpoint.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn is_modified(&self, key: Key, slot: usize) -> Result<bool> {
        let node = self.node(key)?;
        Ok(node.epoch == self.epoch && Pointer::read(&node.bytes, slot).is_modified())
    }

    /// The block that the pointer at `slot` of a block leads to; `None` if it leads to none.
    ///
    /// # Errors
    /// If it cannot be read, or is not what it should be.
    pub fn child(
        &mut self,
        disk: &impl Disk,
        parent: Key,
        slot: usize,
        kind: Kind,
    ) -> Result<Option<Key>> {
        let pointer = self.pointer(parent, slot)?;
        if pointer.is_null() {
            return Ok(None);
        }
        let key = pointer.block();
        self.clock += 1;
        if let Some(node) = self.nodes.get_mut(&key) {
            node.used = self.clock;
            // Two pointers to one block, in a store that somebody else has written.
            return match node.kind == kind && node.parent == (parent, slot) {
                true => Ok(Some(key)),
                false => Err(Error::Damaged { what: kind.name(), why: "two blocks point to it" }),
            };
        }
        if !pointer.is_twinned() {
            return Err(Error::Damaged { what: kind.name(), why: "it has no twins" });
        }
        let bytes = self.read(disk, pointer, kind)?;
        let epoch = if self.is_modified(parent, slot)? { self.epoch } else { 0 };
        let parent = (parent, slot);
        let used = self.clock;
        self.insert(key, Node { kind, bytes, parent, epoch, dirty: false, children: 0, used });
        Ok(Some(key))
    }

    fn insert(&mut self, key: Key, node: Node) {
        if let Some(parent) = self.nodes.get_mut(&node.parent.0) {
            parent.children += 1;
        }
        self.nodes.insert(key, node);
    }

    /// Reads and checks the block that a pointer leads to.
    fn read(&self, disk: &impl Disk, pointer: Pointer, kind: Kind) -> Result<Box<Block>> {
        let block = self.place(pointer);
        let bytes = Box::new(blocks::read(disk, block)?);
        if Checksum::of(self.seed, bytes.as_slice()) != pointer.checksum() {
            return Err(Error::Corrupt { what: kind.name(), block });
        }
        kind.check(&bytes, &self.geometry)?;
        Ok(bytes)
    }

    /// Where what a pointer leads to was written last.
    fn place(&self, pointer: Pointer) -> u64 {
        let [left, right] = self.geometry.twins(pointer.block());
        if pointer.is_right() { right } else { left }
    }

    /// Makes a new block with twins, of zeros, and has the pointer at `slot` of a block lead to it.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn make(&mut self, parent: Key, slot: usize, kind: Kind, left: u64) -> Result<Key> {
        self.set(parent, slot, Pointer::twins(left).turned())?;
        self.clock += 1;
        let node = Node {
            kind,
            bytes: Box::new(ZEROS),
            parent: (parent, slot),
            epoch: self.epoch,
            dirty: true,
            children: 0,
            used: self.clock,
        };
        self.insert(left, node);
        Ok(left)
    }

    /// Drops a block, which nothing is to point to from now on. Nothing below it may be in memory.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn remove(&mut self, parent: Key, slot: usize) -> Result<()> {
        let pointer = self.pointer(parent, slot)?;
        if pointer.is_twinned() && self.nodes.remove(&pointer.block()).is_some() {
            let parent = self.nodes.get_mut(&parent).ok_or(LOST)?;
            parent.children -= 1;
        }
        self.set(parent, slot, Pointer::default())
    }

    /// Puts a new indirect block between the pointer at `place` and what it leads to, `below`.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn put_above(&mut self, place: (Key, usize), left: u64) -> Result<Key> {
        let modified = self.is_modified(place.0, place.1)?;
        let below = self.pointer(place.0, place.1)?;
        // The block that points to it is modified from here on, and so is the new one: the bit counts in both.
        let below = if modified { below } else { below.stable() };
        let key = self.make(place.0, place.1, Kind::Indirect, left)?;
        self.set(key, 0, below)?;
        if below.is_twinned()
            && let Some(moved) = self.nodes.get_mut(&below.block())
        {
            moved.parent = (key, 0);
            for (key, one) in [(place.0, -1), (key, 1)] {
                let node = self.nodes.get_mut(&key).ok_or(LOST)?;
                node.children = node.children.saturating_add_signed(one);
            }
        }
        Ok(key)
    }

    /// Puts a pointer into a block.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn set(&mut self, key: Key, slot: usize, pointer: Pointer) -> Result<()> {
        pointer.write(self.change(key)?, slot);
        Ok(())
    }

    /// The content of a block, to be changed.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn change(&mut self, key: Key) -> Result<&mut Block> {
        let mut way = vec![key];
        let mut at = key;
        while at != ROOT {
            at = self.node(at)?.parent.0;
            way.push(at);
        }
        // From the root on down: a block that turns forgets which of those below it were modified.
        for key in way.into_iter().rev() {
            self.turn(key)?;
        }
        self.changes += 1;
        Ok(&mut self.nodes.get_mut(&key).ok_or(LOST)?.bytes)
    }

    /// Has a block be dirty, and modified. The ones above it are.
    fn turn(&mut self, key: Key) -> Result<()> {
        let epoch = self.epoch;
        let node = self.nodes.get_mut(&key).ok_or(LOST)?;
        node.dirty = true;
        if node.epoch == epoch {
            return Ok(());
        }
        node.epoch = epoch;
        for slot in node.kind.slots(&self.geometry) {
            let pointer = Pointer::read(&node.bytes, slot);
            pointer.stable().write(&mut node.bytes, slot);
        }
        let (parent, slot) = node.parent;
        if key != ROOT {
            let parent = self.nodes.get_mut(&parent).ok_or(LOST)?;
            let pointer = Pointer::read(&parent.bytes, slot);
            pointer.turned().write(&mut parent.bytes, slot);
        }
        Ok(())
    }

    /// Writes all dirty blocks but the root to the disk, and puts their checksums into the ones above them.
    ///
    /// # Errors
    /// If a block makes no sense, or the disk fails.
    pub fn write(&mut self, disk: &impl Disk) -> Result<()> {
        let mut dirty = Vec::new();
        for (&key, node) in self.nodes.iter().filter(|(_, node)| node.dirty) {
            dirty.push((self.depth_of(key)?, key));
            node.kind.check(&node.bytes, &self.geometry)?;
        }
        // Those that others point to come first, so that each has its last content when its checksum is taken.
        dirty.sort_unstable_by(|one, other| other.cmp(one));
        let mut writes = BTreeMap::new();
        for (_, key) in dirty.into_iter().filter(|(_, key)| *key != ROOT) {
            let node = self.nodes.get_mut(&key).ok_or(LOST)?;
            node.dirty = false;
            let checksum = Checksum::of(self.seed, node.bytes.as_slice());
            let (parent, slot) = node.parent;
            let parent = self.nodes.get_mut(&parent).ok_or(LOST)?;
            let pointer = Pointer::read(&parent.bytes, slot).with_checksum(checksum);
            pointer.write(&mut parent.bytes, slot);
            writes.insert(self.place(pointer), key);
        }
        self.write_in_order(disk, &writes)
    }

    /// Writes blocks in the order of their places, neighbours at once.
    fn write_in_order(&self, disk: &impl Disk, writes: &BTreeMap<u64, Key>) -> Result<()> {
        /// Blocks written at once.
        const MOST: usize = 64;
        let mut together: Vec<u8> = Vec::new();
        let mut first = 0;
        let put = |first: u64, bytes: &[u8]| match bytes.is_empty() {
            true => Ok(()),
            false => blocks::write(disk, first, bytes),
        };
        for (&block, &key) in writes {
            let next = first + (together.len() / BLOCK) as u64;
            if block != next || together.len() >= MOST * BLOCK {
                put(first, &together)?;
                together.clear();
                first = block;
            }
            together.extend_from_slice(self.node(key)?.bytes.as_slice());
        }
        put(first, &together)
    }

    /// Drops a block that is not changed and has none below it in memory: who goes through all of a store needs each once.
    pub fn release(&mut self, key: Key) {
        let can_go = |node: &Node| !node.dirty && node.children == 0;
        if key != ROOT
            && self.nodes.get(&key).is_some_and(can_go)
            && let Some(node) = self.nodes.remove(&key)
            && let Some(parent) = self.nodes.get_mut(&node.parent.0)
        {
            parent.children -= 1;
        }
    }

    fn depth_of(&self, key: Key) -> Result<u32> {
        let (mut depth, mut at) = (0, key);
        while at != ROOT {
            depth += 1;
            at = self.node(at)?.parent.0;
        }
        Ok(depth)
    }

    /// The next epoch begins: nothing is modified any more.
    pub fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        if let Some(root) = self.nodes.get_mut(&ROOT) {
            root.dirty = false;
        }
    }

    /// Drops blocks that were not used for long, until no more than the limit are in memory. If too many are dirty they are written
    /// before.
    ///
    /// # Errors
    /// Those of [`Nodes::write`].
    pub fn shrink(&mut self, disk: &impl Disk) -> Result<()> {
        if self.nodes.len() <= self.limit {
            return Ok(());
        }
        if self.nodes.values().filter(|node| node.dirty).count() > self.limit / 2 {
            self.write(disk)?;
        }
        let aim = self.limit / 4 * 3;
        loop {
            let mut old: Vec<(u64, Key)> = self
                .nodes
                .iter()
                .filter(|(key, node)| **key != ROOT && !node.dirty && node.children == 0)
                .map(|(key, node)| (node.used, *key))
                .collect();
            old.sort_unstable();
            let surplus = self.nodes.len().saturating_sub(aim);
            old.truncate(surplus);
            if old.is_empty() {
                return Ok(());
            }
            for (_, key) in old {
                let node = self.nodes.remove(&key).ok_or(LOST)?;
                if let Some(parent) = self.nodes.get_mut(&node.parent.0) {
                    parent.children -= 1;
                }
            }
        }
    }
}

/// What is looked for must be in memory.
const LOST: Error = Error::Damaged { what: "a block of metadata", why: "it is not in memory" };
