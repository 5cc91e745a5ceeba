//! How a block is made, changed and taken away: at its first change in an epoch it turns to its
//! other twin, and so do those above it.

use super::{Key, LOST, Node, Nodes, ROOT, TWO};
use crate::error::{Error, Result};
use crate::layout::Kind;
use crate::pointer::Pointer;
use belay_disk::{Block, ZEROS};

impl Nodes {
    /// Makes a new block with twins, of zeros, and has the pointer at `slot` of a block lead to it.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn make(&mut self, parent: Key, slot: usize, kind: Kind, left: u64) -> Result<Key> {
        if self.nodes.contains_key(&left) {
            return Err(Error::Damaged { what: "a bitmap block", why: "what is in use is free" });
        }
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

    /// Begins a block anew that cannot be read, and is not in memory: it is zeros, in the place
    /// that it has.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn renew(&mut self, parent: Key, slot: usize, kind: Kind) -> Result<Key> {
        let key = self.pointer(parent, slot)?.block();
        self.clock += 1;
        let epoch = if self.is_modified(parent, slot)? { self.epoch } else { 0 };
        let (parent, bytes, used) = ((parent, slot), Box::new(ZEROS), self.clock);
        self.insert(key, Node { kind, bytes, parent, epoch, dirty: false, children: 0, used });
        self.change(key)?;
        Ok(key)
    }

    /// Drops a block, which nothing is to point to from now on. Nothing below it may be in memory.
    ///
    /// # Errors
    /// As for [`Nodes::bytes`].
    pub fn remove(&mut self, parent: Key, slot: usize) -> Result<()> {
        let pointer = self.pointer(parent, slot)?;
        if pointer.is_twinned()
            && let Some(node) = self.nodes.get(&pointer.block())
        {
            if node.parent != (parent, slot) {
                return Err(Error::Damaged { what: node.kind.name(), why: TWO });
            }
            self.nodes.remove(&pointer.block());
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
        // The block that points to it is modified from here on, and so is the new one: the bit
        // counts in both.
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
}
