//! The metadata blocks in memory: a tree whose root is the root block, in which each block is known
//! by its left twin.
//!
//! A block is *modified* if it was changed since the last checkpoint. At its first change it turns
//! to its other twin, so that the one that the checkpoint consists of stays what it is; and so does
//! the block that points to it, up to the root. A block is *dirty* if memory is ahead of the disk.
//! Checksums are put into the blocks above when dirty blocks are written ([`Nodes::write`]).
//!
//! Invariants: a block in memory has the one that points to it in memory; one above a dirty block
//! is dirty, and one above a modified block is modified. That is why the modified bits in a block
//! that is not modified itself mean nothing: they are cleared when it turns.
//!
//! | module | question |
//! | --- | --- |
//! | [`change`] | how is a block made, changed and taken away, so that the last checkpoint stays what it is |
//! | [`write`](mod@write) | how do dirty blocks reach the disk |
//! | [`sound`] | do a group and its bitmaps make sense, before they reach it |

mod change;
mod sound;
mod write;

use crate::blocks;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::layout::{self, Kind};
use crate::pointer::{Checksum, Pointer};
use belay_disk::{Block, Disk};
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

    /// Whether what the pointer at `slot` of a block leads to was written since the last
    /// checkpoint.
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
        if pointer.is_lost() {
            return Err(Error::Lost { what: kind.name(), block: key });
        }
        self.clock += 1;
        if let Some(node) = self.nodes.get_mut(&key) {
            node.used = self.clock;
            return match node.kind == kind && node.parent == (parent, slot) {
                true => Ok(Some(key)),
                false => Err(Error::Damaged { what: kind.name(), why: TWO }),
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

    /// Drops a block that is not changed and has none below it in memory: who goes through all of a
    /// store needs each once.
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

    /// Drops blocks that were not used for long, until no more than the limit are in memory. If too
    /// many are dirty they are written before.
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

/// In a store that somebody else has written.
const TWO: &str = "two blocks point to it";

/// What is looked for must be in memory.
const LOST: Error = Error::Damaged { what: "a block of metadata", why: "it is not in memory" };
