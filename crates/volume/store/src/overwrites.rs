//! Overwrites of blocks in place, until they are made ([`crate::resync`]).

use crate::file_id::FileId;
use crate::pointer::Checksum;
use belay_disk::Block;
use std::collections::BTreeMap;

/// An overwrite that is in memory.
#[derive(Clone, Debug)]
pub struct Overwrite {
    /// Of which file.
    pub file: FileId,
    /// Which block of it.
    pub number: u64,
    /// The checksum of its new content.
    pub checksum: Checksum,
    /// That content.
    pub content: Box<Block>,
}

/// What is known of overwrites since the last checkpoint.
#[derive(Debug, Default)]
pub struct Resync {
    /// By the block of the disk.
    pub overwrites: BTreeMap<u64, Overwrite>,
    /// Blocks of the log that are written.
    pub used: u64,
    /// Blocks that were overwritten since the checkpoint that the store was opened at, before it
    /// was.
    pub found: Vec<(FileId, u64)>,
    /// What could not be read of them then, and may be later.
    pub unresolved: Option<String>,
}

impl Resync {
    /// What a block is to be, if it is not that yet.
    pub fn pending(&self, block: u64) -> Option<&Block> {
        self.overwrites.get(&block).map(|overwrite| &*overwrite.content)
    }

    /// A block is to be overwritten.
    pub fn add(
        &mut self,
        block: u64,
        file: FileId,
        number: u64,
        checksum: Checksum,
        content: &Block,
    ) {
        let content = Box::new(*content);
        self.overwrites.insert(block, Overwrite { file, number, checksum, content });
    }

    /// A block is nobody's any more.
    pub fn forget(&mut self, block: u64) {
        self.overwrites.remove(&block);
    }

    /// A checkpoint was taken: the log is empty.
    pub fn checkpointed(&mut self) {
        self.used = 0;
    }
}
