//! How dirty blocks reach the disk: those below before those above, each with its checksum in the
//! one that points to it.

use super::{Key, LOST, Nodes, ROOT};
use crate::blocks;
use crate::error::Result;
use crate::layout::Kind;
use crate::pointer::{Checksum, Pointer};
use belay_disk::Disk;
use std::collections::BTreeMap;

impl Nodes {
    /// Writes all dirty blocks but the root to the disk, and puts their checksums into the ones
    /// above them.
    ///
    /// # Errors
    /// If a block makes no sense, or the disk fails.
    pub fn write(&mut self, disk: &impl Disk) -> Result<()> {
        let mut dirty = Vec::new();
        for (&key, node) in self.nodes.iter().filter(|(_, node)| node.dirty) {
            dirty.push((self.depth_of(key)?, key));
            node.kind.check(&node.bytes, &self.geometry)?;
            // One that is above a bitmap which was changed was changed as well.
            if node.kind == Kind::Group {
                self.check_group(key, &node.bytes)?;
            }
        }
        // Those that others point to come first, so that each has its last content when its
        // checksum is taken.
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
        let content = |(block, key)| Ok((block, &*self.node(key)?.bytes));
        blocks::write_in_order(disk, writes.into_iter().map(content))
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
}
