//! A store that is open.

use crate::blocks;
use crate::error::{Error, Result};
use crate::geometry::{DataMode, Geometry, Parameters};
use crate::layout::{self, Made, Root};
use crate::nodes::{Nodes, ROOT};
use crate::overwrites::Resync;
use crate::root::{self, Checkpoint, Identity, Next};
use crate::space::Space;
use crate::step::Step;
use crate::tail::Tail;
use belay_disk::{Block, Disk, ZEROS};

/// Metadata blocks that are kept in memory: 64 MiB.
const NODES: usize = 16_384;

/// Bitmap blocks, and blocks of groups, that are looked at when a store is opened: those of more
/// than 400 GiB.
const BITMAPS: u64 = 4096;

/// A file store that is open, at the state that it has now.
#[derive(Debug)]
pub struct Store<D> {
    pub(crate) disk: D,
    pub(crate) nodes: Nodes,
    pub(crate) space: Space,
    pub(crate) resync: Resync,
    /// Where the next intent goes, if that is known.
    pub(crate) tail: Option<Tail>,
    /// Where it ends once what is being appended is durable.
    pub(crate) appended: Option<Tail>,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u64,
    pub(crate) step: Step,
    /// The store was opened where there may have been a later checkpoint.
    pub(crate) is_next_broken: bool,
    /// Why no change is made any more.
    failed: Option<String>,
}

impl<D: Disk> Store<D> {
    /// Makes an empty store on a disk, and its first checkpoint.
    ///
    /// # Errors
    /// If the disk is too small, or fails.
    pub fn format(disk: D, identity: &Identity, parameters: Parameters) -> Result<Self> {
        let geometry = Geometry::new(disk.blocks(), parameters)?;
        let mut root: Root = layout::read(&ZEROS, 0);
        root.magic = layout::MAGIC;
        root.version = layout::VERSION.into();
        let mut made = Made::empty();
        made.set(Made::FREES_AT_ONCE, parameters.frees_at_once);
        made.set(Made::IN_PLACE, parameters.data == DataMode::InPlace);
        root.made = made.bits().into();
        root.volume = identity.volume;
        root.store = identity.store;
        root.blocks = geometry.blocks.into();
        root.group_blocks = (parameters.group_blocks as u32).into();
        root.twin_offset = (parameters.twin_offset as u32).into();
        root.free_blocks = geometry.capacity().into();
        root.free_pairs = geometry.pairs().into();
        root.member_count = (identity.members.len() as u32).into();
        for (room, member) in root.members.iter_mut().zip(&identity.members) {
            *room = *member;
        }
        let mut block: Box<Block> = Box::new(ZEROS);
        layout::write(&mut block, 0, &root);
        // Whatever was there is none any more, before there is a new one.
        for epoch in 0..2 {
            for place in geometry.root_places(epoch) {
                blocks::write(&disk, place, &ZEROS)?;
            }
        }
        let mut store = Self::with(disk, block, 1, geometry, seed_of(&identity.store));
        store.make_log()?;
        store.make_intent_log()?;
        store.checkpoint()?;
        Ok(store)
    }

    /// Opens a store at one of its checkpoints ([`root::checkpoints`]). Later ones are gone then.
    ///
    /// # Errors
    /// If the disk fails; [`Error::NoStore`] if a later one is known to have been there, and
    /// nothing of it is.
    pub fn open(disk: D, checkpoint: &Checkpoint) -> Result<Self> {
        let next = root::next(&disk, checkpoint);
        if next == Next::Lost {
            return Err(root::lost(checkpoint));
        }
        // The process that wrote this root may have died before it was durable. What is written
        // from now on is no longer what the checkpoint before consists of.
        root::renew(&disk, checkpoint)?;
        root::forget_later(&disk, checkpoint)?;
        let geometry = checkpoint.geometry;
        let seed = seed_of(&checkpoint.identity.store);
        let epoch = checkpoint.epoch + 1;
        let mut store = Self::with(disk, checkpoint.block.clone(), epoch, geometry, seed);
        store.is_next_broken = next == Next::Broken;
        store.resynchronize()?;
        store.look_at_bitmaps(BITMAPS)?;
        Ok(store)
    }

    /// Opens a store at its last checkpoint.
    ///
    /// # Errors
    /// If there is none; if the disk fails.
    pub fn open_last(disk: D) -> Result<Self> {
        let found = root::checkpoints(&disk)?;
        let last = found.first().ok_or_else(|| Error::NoStore("there is no checkpoint".into()))?;
        Self::open(disk, last)
    }

    fn with(disk: D, root: Box<Block>, epoch: u64, geometry: Geometry, seed: u64) -> Self {
        let nodes = Nodes::new(root, epoch, seed, geometry, NODES);
        let (space, resync) = (Space::default(), Resync::default());
        Self {
            disk,
            nodes,
            space,
            resync,
            tail: None,
            appended: None,
            geometry,
            seed,
            step: Step::default(),
            is_next_broken: false,
            failed: None,
        }
    }

    /// Keeps no more than so many metadata blocks in memory.
    pub fn limit_memory(&mut self, blocks: usize) {
        self.nodes.limit(blocks);
    }

    /// The epoch that is under way: that of the next checkpoint.
    pub fn epoch(&self) -> u64 {
        self.nodes.epoch()
    }

    /// The disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// What the layer above keeps in the root.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn label(&self) -> Result<[u8; 256]> {
        Ok(self.root()?.label)
    }

    /// Replaces that; it is part of the next checkpoint.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn set_label(&mut self, label: [u8; 256]) -> Result<()> {
        self.whole(|this| {
            this.root_mut()?.label = label;
            Ok(())
        })
    }

    /// Makes a change, which happens as a whole or makes the store useless: after an error in the
    /// middle of it nothing is changed any more. A want of room leaves what was done before, which
    /// is whole.
    pub(crate) fn whole<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.at(Step::Changing, change)
    }

    /// The same at that step of a checkpoint, and no other.
    pub(crate) fn at<T>(
        &mut self,
        step: Step,
        change: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if let Some(why) = &self.failed {
            return Err(Error::Failed(why.clone()));
        }
        if self.step != step {
            return Err(Error::Failed("a checkpoint is being taken".to_owned()));
        }
        // The next checkpoint would give up for good what the log says.
        self.resolved()?;
        let before = self.nodes.changes();
        let done = change(self);
        if let Err(error) = &done
            && !matches!(error, Error::NoSpace)
            && self.nodes.changes() != before
        {
            self.fail(error);
        }
        done
    }

    /// Makes room in memory, for which something may be written. What could not be is taken for
    /// written: so nothing is changed any more.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        self.nodes.shrink(&self.disk).inspect_err(|why| self.failed = Some(why.to_string()))
    }

    /// Nothing is changed any more.
    pub(crate) fn fail(&mut self, why: &Error) {
        self.failed = Some(why.to_string());
    }

    /// Writes the root of the epoch that is under way, which ends with it.
    pub(crate) fn write_root(&mut self) -> Result<()> {
        let epoch = self.nodes.epoch();
        let root = self.root_mut()?;
        // It is still the one that the last checkpoint was written with.
        root.previous_checksum = root.checksum;
        root.previous = root.epoch;
        root.epoch = epoch.into();
        let checksum = layout::root_checksum(self.nodes.bytes(ROOT)?);
        self.root_mut()?.checksum = checksum.0.into();
        let bytes = self.nodes.bytes(ROOT)?;
        let mut places = self.geometry.root_places(epoch).into_iter();
        places.try_for_each(|place| blocks::write(&self.disk, place, bytes))
    }
}

/// With what the checksums of a store are seeded.
pub(crate) fn seed_of(store: &[u8; 16]) -> u64 {
    u64::from_le_bytes(*store.first_chunk().unwrap_or(&[0; 8]))
}
