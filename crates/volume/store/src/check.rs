//! Whether a store is as it should be: everything is read, and counted anew.

use crate::blocks;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::layout::{self, Group, InodeFlags, Kind, Root};
use crate::nodes::ROOT;
use crate::pointer::{Checksum, Pointer};
use crate::store::Store;
use crate::tree::{Place, Tree, leaves_of};
use belay_disk::Disk;
use std::collections::BTreeSet;

/// What was found to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file that it is in, if it is in one.
    pub file: Option<FileId>,
    /// What it is.
    pub what: String,
}

/// What a check has looked at, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files.
    pub files: u64,
    /// Blocks of data.
    pub data_blocks: u64,
    /// Blocks of metadata, twins counted once.
    pub metadata_blocks: u64,
    /// What is wrong: at most [`Report::MOST`].
    pub findings: Vec<Finding>,
}

impl Report {
    /// Findings that are listed.
    pub const MOST: usize = 1000;

    fn add(&mut self, file: Option<FileId>, what: impl Into<String>) {
        if self.findings.len() < Self::MOST {
            self.findings.push(Finding { file, what: what.into() });
        }
    }
}

struct Checker<'s, D> {
    store: &'s mut Store<D>,
    report: Report,
    /// Blocks that something points to.
    used: BTreeSet<u64>,
}

impl<D: Disk> Store<D> {
    /// Reads all of the store, verifies each checksum, and counts what is in use anew. Changes are to be part of a checkpoint by then.
    ///
    /// # Errors
    /// If the disk fails; what is wrong with the store is in the report.
    pub fn check(&mut self) -> Result<Report> {
        let mut checker = Checker { store: self, report: Report::default(), used: BTreeSet::new() };
        let root = checker.store.root()?;
        for (first, count) in
            [(root.log_first, root.log_blocks), (root.intent_first, root.intent_blocks)]
        {
            checker.used.extend(first.get()..first.get() + count.get());
        }
        checker.inodes()?;
        checker.space()?;
        Ok(checker.report)
    }
}

impl<D: Disk> Checker<'_, D> {
    /// Takes down what cannot be read for its content; what the disk says is an error.
    fn note<T>(&mut self, file: Option<FileId>, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error @ Error::Disk { .. }) => Err(error),
            Err(error) => {
                self.report.add(file, error.to_string());
                Ok(None)
            }
        }
    }

    fn inodes(&mut self) -> Result<()> {
        let tree = self.store.inode_tree()?;
        let mut count = 0;
        self.walk(None, tree, 0, &mut count)?;
        let root = *self.store.root()?;
        let mut free = BTreeSet::new();
        for number in 0..root.inodes.get() {
            let found = self.store.inode_at(number);
            let Some(Some((at, inode))) = self.note(None, found)? else { continue };
            if !inode.flags().contains(InodeFlags::USED) {
                free.insert(number);
                continue;
            }
            let file = self.store.file_with(number)?;
            self.report.files += 1;
            let tree = crate::files::tree_of(at, &inode);
            let mut count = 0;
            self.walk(file, tree, inode.size.get().div_ceil(belay_disk::BLOCK as u64), &mut count)?;
            if count != inode.blocks.get() {
                let said = inode.blocks.get();
                self.report.add(file, format!("it has {count} blocks, and counts {said}"));
            }
            self.store.nodes.shrink(&self.store.disk)?;
        }
        self.free_list(&root, free)
    }

    /// The list of free inodes has each of them once.
    fn free_list(&mut self, root: &Root, mut free: BTreeSet<u64>) -> Result<()> {
        let mut next = root.free_inode.get();
        while let Some(number) = next.checked_sub(1) {
            if !free.remove(&number) {
                self.report.add(None, "the list of free inodes has one that is not free, or twice");
                return Ok(());
            }
            let found = self.store.inode_at(number);
            let Some(Some((_, inode))) = self.note(None, found)? else { return Ok(()) };
            next = inode.next_free.get();
        }
        if !free.is_empty() {
            self.report.add(None, format!("{} free inodes are on no list", free.len()));
        }
        Ok(())
    }

    /// Goes through a tree: its blocks are counted, and each must match its checksum.
    fn walk(&mut self, file: Option<FileId>, tree: Tree, end: u64, count: &mut u64) -> Result<()> {
        if tree.depth == 0 {
            return Ok(());
        }
        self.walk_below(file, (tree.key, tree.slot), tree, tree.depth - 1, (0, end), count)
    }

    fn walk_below(
        &mut self,
        file: Option<FileId>,
        place: Place,
        tree: Tree,
        height: u32,
        (first, end): (u64, u64),
        count: &mut u64,
    ) -> Result<()> {
        let (key, slot) = place;
        let pointer = self.store.nodes.pointer(key, slot)?;
        if pointer.is_null() {
            return Ok(());
        }
        *count += 1;
        self.uses(file, pointer);
        let kind = if height > 0 { Kind::Indirect } else { tree.leaves };
        if height == 0 && tree.leaves == Kind::Bitmap {
            if first >= end {
                self.report.add(file, "it has data behind its end");
            }
            self.report.data_blocks += 1;
            return self.data(file, pointer, first);
        }
        match tree.leaves == Kind::Data && height == 0 {
            true => self.report.data_blocks += 1,
            false => self.report.metadata_blocks += 1,
        }
        let child = self.store.nodes.child(&self.store.disk, key, slot, kind);
        let Some(Some(child)) = self.note(file, child)? else { return Ok(()) };
        if height > 0 {
            let each = leaves_of(height);
            for number in 0..crate::geometry::FANOUT {
                let place = (child, layout::slot(number));
                let start = first + number * each;
                self.walk_below(file, place, tree, height - 1, (start, end), count)?;
            }
        }
        Ok(())
    }

    fn data(&mut self, file: Option<FileId>, pointer: Pointer, number: u64) -> Result<()> {
        let at = pointer.block();
        let block = blocks::read(&self.store.disk, at)?;
        if Checksum::of(self.store.seed, &block) != pointer.checksum() {
            let what = format!(
                "block {number} of it (block {at} of the disk) does not match its checksum"
            );
            self.report.add(file, what);
        }
        Ok(())
    }

    fn uses(&mut self, file: Option<FileId>, pointer: Pointer) {
        let [left, right] = self.store.geometry.twins(pointer.block());
        let twins = if pointer.is_twinned() && right != left { 2 } else { 1 };
        for block in [left, right].into_iter().take(twins) {
            if !self.used.insert(block) {
                self.report.add(file, format!("block {block} of the disk is in use twice"));
            }
        }
    }

    /// What is in use is marked as such, and nothing else; and it was counted rightly.
    fn space(&mut self) -> Result<()> {
        let geometry = self.store.geometry;
        let (mut all, mut pairs) = (0, 0);
        for group in 0..geometry.groups() {
            let (start, end) = geometry.range_of(group);
            let mut free = 0;
            for block in start..end {
                if geometry.is_reserved(block) {
                    continue;
                }
                let marked = self.store.is_marked(block);
                let Some(marked) = self.note(None, marked)? else { break };
                if marked != self.used.contains(&block) {
                    let what = if marked { "in use, and is not" } else { "free, and is not" };
                    self.report.add(None, format!("block {block} of the disk is marked as {what}"));
                }
                free += u64::from(!marked);
                let partner = geometry.partner(block);
                if !marked && partner >= block && !geometry.is_reserved(partner) {
                    let other = self.store.is_marked(partner);
                    pairs += u64::from(self.note(None, other)? == Some(false));
                }
            }
            all += free;
            let counted = self.counted(group)?;
            if counted.is_some_and(|counted| counted != free) {
                self.report.add(None, format!("group {group} counts its free blocks wrong"));
            }
            self.store.nodes.shrink(&self.store.disk)?;
        }
        if self.store.free_blocks()? != all {
            self.report.add(None, "the root counts the free blocks wrong");
        }
        if self.store.root()?.free_pairs.get() != pairs {
            self.report.add(None, "the root counts the free pairs wrong");
        }
        Ok(())
    }

    /// What the block of a group says is free of it, if it has one.
    fn counted(&mut self, group: u64) -> Result<Option<u64>> {
        let fanout = crate::geometry::FANOUT;
        let slot = layout::index_slot(group / fanout);
        let index = self.store.nodes.child(&self.store.disk, ROOT, slot, Kind::Index);
        let Some(Some(index)) = self.note(None, index)? else { return Ok(None) };
        let slot = layout::slot(group % fanout);
        let block = self.store.nodes.child(&self.store.disk, index, slot, Kind::Group);
        let Some(Some(block)) = self.note(None, block)? else { return Ok(None) };
        Ok(Some(self.store.nodes.record::<Group>(block, 0)?.free.get()))
    }
}
