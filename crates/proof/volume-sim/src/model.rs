//! What a file store must hold, told by plain maps.

use belay_disk::{Block, ZEROS};
use belay_store::{Class, FileId};
use std::collections::BTreeMap;

/// A file of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    /// What the layer above calls it.
    pub owner: u64,
    /// How its data are kept.
    pub class: Class,
    /// Its length in bytes.
    pub size: u64,
    /// What the layers above keep with it.
    pub attributes: Vec<u8>,
    /// Its blocks, but those that were never written.
    pub blocks: BTreeMap<u64, Box<Block>>,
}

impl ModelFile {
    /// What a block reads as.
    pub fn block(&self, number: u64) -> Block {
        self.blocks.get(&number).map_or(ZEROS, |block| **block)
    }
}

/// The files of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// By their numbers.
    pub files: BTreeMap<FileId, ModelFile>,
}

impl Model {
    /// Changes the length of a file: what is behind it is gone.
    pub fn set_size(&mut self, file: FileId, size: u64) {
        let Some(file) = self.files.get_mut(&file) else { return };
        let end = size.div_ceil(belay_disk::BLOCK as u64);
        let shrinks = size < file.size;
        file.blocks.retain(|number, _| *number < end);
        let within = (size % belay_disk::BLOCK as u64) as usize;
        if shrinks
            && within != 0
            && let Some(last) = file.blocks.get_mut(&(end - 1))
        {
            last[within..].fill(0);
        }
        file.size = size;
    }
}
