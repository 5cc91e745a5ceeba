//! Checksums that are right, whatever the blocks say: so what is behind them is looked at.

use super::{BLOCKS, CorruptDisk};
use belay_disk::{BLOCK, Block, ZEROS};
use belay_store::layout::{self, INODE_TREE, INODES, Inode, InodeFlags, Kind, MAGIC, Root};
use belay_store::{Checksum, Geometry, Parameters, Pointer};
use std::collections::BTreeSet;
use zerocopy::little_endian::U64;

/// Deeper trees are not followed.
const DEEPEST: u32 = 8;
/// Where in a block of a log its own checksum is.
const OWN: usize = 24;

/// Has all checksums of a disk be right.
pub(super) fn fix(disk: &CorruptDisk<'_>) {
    let places = [1, 2, BLOCKS - 1, BLOCKS - 2];
    let root_at = |place| (place, layout::read::<Root>(&disk.get(place), 0));
    let is_root = |(_, root): &(u64, Root)| root.magic == MAGIC;
    let mut roots: Vec<(u64, Root)> = places.map(root_at).into_iter().filter(is_root).collect();
    roots.sort_by_key(|(_, root)| std::cmp::Reverse(root.epoch.get()));
    let Some((_, newest)) = roots.first().copied() else { return };
    // Whatever a root says of itself: what is to be reached is where it was.
    let offset = u64::from(newest.twin_offset.get());
    let parameters = Parameters { twin_offset: offset, group_blocks: 256, ..Parameters::default() };
    let Ok(geometry) = Geometry::new(BLOCKS, parameters) else { return };
    let seed = u64::from_le_bytes(*newest.store.first_chunk().unwrap_or(&[0; 8]));
    let mut fixer = Fixer { disk, seed, geometry, seen: BTreeSet::new() };
    for (place, _) in &roots {
        let mut content = disk.get(*place);
        fixer.inside(&mut content, Kind::Root, 0, Kind::Inodes);
        seal(disk, *place, &mut content);
    }
    let older = roots.iter().find(|(_, root)| root.epoch.get() < newest.epoch.get());
    let previous = older.map(|(place, _)| layout::root_checksum(&disk.get(*place)).0);
    for (place, _) in roots.iter().filter(|(_, root)| root.epoch == newest.epoch) {
        let mut content = disk.get(*place);
        let at = std::mem::offset_of!(Root, previous_checksum);
        layout::write(&mut content, at, &U64::from(previous.unwrap_or_default()));
        seal(disk, *place, &mut content);
    }
    logs(disk, &newest);
}

fn seal(disk: &CorruptDisk<'_>, place: u64, content: &mut Block) {
    let sum = U64::from(layout::root_checksum(content).0);
    layout::write(content, BLOCK - 8, &sum);
    disk.put(place, content);
}

/// The blocks of both logs check themselves, and those of the intent log name the ones before them.
fn logs(disk: &CorruptDisk<'_>, newest: &Root) {
    let range = |first: u64, count: u64| {
        first.min(BLOCKS)..first.saturating_add(count.min(BLOCKS)).min(BLOCKS)
    };
    for block in range(newest.log_first.get(), newest.log_blocks.get()) {
        own(disk, block, 0, None);
    }
    let half = newest.intent_blocks.get() / 2;
    for place in [1, 2] {
        let content = disk.get(place);
        let root: Root = layout::read(&content, 0);
        let area = (root.epoch.get() % 2).saturating_mul(half);
        let first = newest.intent_first.get().saturating_add(area);
        let mut before = layout::root_checksum(&content).0;
        for block in range(first, half) {
            match own(disk, block, 1, Some(before)) {
                Some(sum) => before = sum,
                None => break,
            }
        }
    }
}

fn own(disk: &CorruptDisk<'_>, block: u64, seed: u64, before: Option<u64>) -> Option<u64> {
    let mut content = disk.get(block);
    if content == ZEROS {
        return None;
    }
    before.into_iter().for_each(|before| layout::write(&mut content, 8, &U64::from(before)));
    let sum = layout::own_checksum(&content, OWN, seed).0;
    layout::write(&mut content, OWN, &U64::from(sum));
    disk.put(block, &content);
    Some(sum)
}

struct Fixer<'f, 'b> {
    disk: &'f CorruptDisk<'b>,
    seed: u64,
    geometry: Geometry,
    /// Blocks that were gone through: pointers may lead anywhere.
    seen: BTreeSet<u64>,
}

impl Fixer<'_, '_> {
    /// Goes through what the pointers of a block lead to, and puts their checksums into it.
    fn inside(&mut self, content: &mut Block, kind: Kind, depth: u32, leaves: Kind) {
        let geometry = self.geometry;
        let slots = kind.slots(&geometry);
        match kind {
            Kind::Root => {
                let depth = layout::read::<Root>(content, 0).inode_depth.get();
                slots.filter(|slot| *slot != INODE_TREE).for_each(|slot| {
                    self.child(content, slot, Kind::Index, 0, leaves);
                });
                self.tree(content, INODE_TREE, depth, Kind::Inodes);
            }
            Kind::Index => slots.for_each(|slot| self.child(content, slot, Kind::Group, 0, leaves)),
            Kind::Group => {
                slots.for_each(|slot| self.child(content, slot, Kind::Bitmap, 0, leaves))
            }
            Kind::Indirect => slots.for_each(|slot| self.tree(content, slot, depth, leaves)),
            Kind::Inodes => {
                for number in 0..INODES {
                    let inode: Inode = layout::read(content, layout::inode_offset(number));
                    let is_protected = inode.flags().contains(InodeFlags::PROTECTED);
                    let leaves = if is_protected { Kind::Data } else { Kind::Bitmap };
                    self.tree(content, layout::inode_slot(number), inode.depth.get(), leaves);
                }
            }
            Kind::Bitmap | Kind::Data => {}
        }
    }

    fn tree(&mut self, content: &mut Block, slot: usize, depth: u32, leaves: Kind) {
        match depth.min(DEEPEST) {
            0 => {}
            1 => self.child(content, slot, leaves, 0, leaves),
            depth => self.child(content, slot, Kind::Indirect, depth - 1, leaves),
        }
    }

    fn child(&mut self, parent: &mut Block, slot: usize, kind: Kind, depth: u32, leaves: Kind) {
        let pointer = Pointer::read(parent, slot);
        if pointer.is_null() || pointer.is_lost() {
            return;
        }
        let [left, right] = self.geometry.twins(pointer.block());
        let place = if pointer.is_right() { right } else { left };
        if place >= BLOCKS {
            return;
        }
        let mut content = self.disk.get(place);
        if self.seen.insert(place) {
            self.inside(&mut content, kind, depth, leaves);
            if content != self.disk.get(place) {
                self.disk.put(place, &content);
            }
        }
        pointer.with_checksum(Checksum::of(self.seed, &content)).write(parent, slot);
    }
}
