//! Whether a store is as it should be: everything is read, and counted anew.
//!
//! What is wrong is taken down, and the rest is looked at all the same. A block is looked at once,
//! whatever points to it, and leaves memory when it was: so neither time nor memory is more than
//! the store has blocks for. What is kept is a bit for each of them.

mod space;

use crate::blocks;
use crate::copies::RootCopy;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::inodes::At;
use crate::intent::Broken;
use crate::layout::{self, INODES, Inode, InodeFlags, Kind};
use crate::nodes::Key;
use crate::pointer::{Checksum, Pointer};
use crate::store::Store;
use crate::tree::{Position, Tree, leaves_of};
use belay_disk::{BLOCK, Disk};
use roaring::RoaringTreemap;

/// What was found to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file that it is in, if it is in one.
    pub file: Option<FileId>,
    /// What the layer above calls that file.
    pub owner: Option<u64>,
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
    /// How many findings there are besides.
    pub unlisted: u64,
    /// What is worth telling, and not wrong.
    pub notes: Vec<String>,
    /// Whether something was given up that could not be read. What is in use, and nothing leads to,
    /// comes of that.
    pub has_given_up: bool,
}

impl Report {
    /// Findings that are listed.
    pub const MOST: usize = 1000;

    fn add(&mut self, file: Option<(FileId, u64)>, what: impl Into<String>) {
        if self.findings.len() >= Self::MOST {
            self.unlisted += 1;
            return;
        }
        let (file, owner) = file.unzip();
        self.findings.push(Finding { file, owner, what: what.into() });
    }
}

struct Checker<'c, D> {
    store: &'c mut Store<D>,
    report: Report,
    /// Is told of each block that was read.
    progress: &'c mut dyn FnMut(u64),
    /// Blocks that something points to.
    used: RoaringTreemap,
    /// Inodes that are not in use.
    free: RoaringTreemap,
    /// The next block of inodes.
    next: u64,
    /// The file that is being looked at, and what it is called above.
    file: Option<(FileId, u64)>,
    /// Blocks of it that are lost, the first of them, and what led to that.
    lost: (u64, u64, u64),
    /// Some metadata could not be read: what they lead to is not known.
    is_partial: bool,
}

impl<D: Disk> Store<D> {
    /// Reads all of the store, verifies each checksum, and counts what is in use anew. Changes are
    /// to be part of a checkpoint by then.
    ///
    /// # Errors
    /// None but those of a store that has failed before; what is wrong with the store is in the
    /// report.
    pub fn check(&mut self) -> Result<Report> {
        self.check_with(&mut |_| {})
    }

    /// The same; tells `progress` how many blocks were read since it was told last.
    ///
    /// # Errors
    /// As for [`Store::check`].
    pub fn check_with(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Report> {
        let mut checker = Checker {
            store: self,
            report: Report::default(),
            progress,
            used: RoaringTreemap::new(),
            free: RoaringTreemap::new(),
            next: 0,
            file: None,
            lost: (0, 0, 0),
            is_partial: false,
        };
        checker.roots()?;
        checker.later()?;
        let root = checker.store.root()?;
        checker.report.has_given_up = root.given_up.get() > 0;
        for (first, count) in
            [(root.log_first, root.log_blocks), (root.intent_first, root.intent_blocks)]
        {
            checker.used.insert_range(first.get()..first.get() + count.get());
        }
        checker.intents()?;
        let resolved = checker.store.resolved();
        checker.note(resolved);
        checker.inodes()?;
        checker.space()?;
        Ok(checker.report)
    }
}

impl<D: Disk> Checker<'_, D> {
    fn add(&mut self, what: impl Into<String>) {
        self.report.add(self.file, what);
    }

    /// Takes down why something cannot be read.
    fn note<T>(&mut self, found: Result<T>) -> Option<T> {
        found.map_err(|why| self.add(why.to_string())).ok()
    }

    /// Takes down what is in use without being of any: where something was given up that is no
    /// damage.
    fn left_over(&mut self, what: String) {
        match self.report.has_given_up {
            true => self.report.notes.push(format!(
                "{what}: they are left over from what was damaged, and has been removed or overwritten"
            )),
            false => self.add(what),
        }
    }

    /// The same for metadata: what they lead to is not known then.
    fn child(&mut self, (key, slot): Position, kind: Kind) -> Option<Key> {
        let pointer = self.store.nodes.pointer(key, slot).unwrap_or_default();
        let child = self.store.nodes.child(&self.store.disk, key, slot, kind);
        let child = self.note(child);
        self.is_partial |= child.is_none();
        if !pointer.is_null() {
            (self.progress)(1);
            self.twin(pointer);
        }
        child.flatten()
    }

    /// The twin that is not in use is written to next: it has to be readable, whatever is in it.
    fn twin(&mut self, pointer: Pointer) {
        let [left, right] = self.store.geometry.twins(pointer.block());
        if pointer.is_twinned() && left != right {
            let other = if pointer.is_right() { left } else { right };
            let read = blocks::read(&self.store.disk, other);
            self.note(read);
        }
    }

    fn roots(&mut self) -> Result<()> {
        for (at, copy) in self.store.root_copies()? {
            let other =
                "the other copy is whole, and the one after the next checkpoint replaces it";
            match copy {
                RootCopy::Whole => {}
                RootCopy::Earlier(epoch) => self.report.notes.push(format!(
                    "block {at} of the disk has the root of checkpoint {epoch}: the last one was cut off; {other}"
                )),
                RootCopy::CutOff => self.report.notes.push(format!(
                    "block {at} of the disk has no root: the last checkpoint was cut off, or the block is damaged; {other}"
                )),
                RootCopy::Damaged => {
                    self.add(format!("a root in block {at} does not match its checksum; {other}"));
                }
                RootCopy::Unreadable(why) => self.add(why.to_string()),
            }
        }
        Ok(())
    }

    /// What may have been after the checkpoint that the store was opened at.
    fn later(&mut self) -> Result<()> {
        if self.store.is_next_broken {
            let epoch = self.store.root()?.epoch.get();
            let [one, other] = self.store.geometry.root_places(epoch + 1);
            self.report.notes.push(format!(
                "blocks {one} and {other} of the disk, where the root of checkpoint {} comes, have no whole one: a power failure has cut it \
                 off, or it is damaged; the store is at checkpoint {epoch}, and what came after that is lost but for the intent log",
                epoch + 1
            ));
        }
        Ok(())
    }

    fn intents(&mut self) -> Result<()> {
        if let Some(Broken { block, why }) = self.store.broken_intents()? {
            self.add(Error::Intents { block, why }.to_string());
        }
        Ok(())
    }

    fn inodes(&mut self) -> Result<()> {
        let tree = self.store.inode_tree()?;
        self.walk(tree, 0, &mut 0)?;
        let root = *self.store.root()?;
        let all = root.inodes.get();
        if !self.is_partial {
            self.no_gap(all.div_ceil(INODES));
            self.free_list(root.free_inode.get(), all)?;
        }
        Ok(())
    }

    /// There is no block of inodes missing before this one.
    fn no_gap(&mut self, block: u64) {
        if self.next != block && !self.is_partial {
            let (next, inodes) = (self.next * INODES, block * INODES);
            self.add(format!("inodes {next} to {inodes} are counted, and have no block"));
        }
    }

    /// The list of free inodes has each of them once.
    fn free_list(&mut self, first: u64, all: u64) -> Result<()> {
        let mut next = first;
        while let Some(number) = next.checked_sub(1) {
            if number >= all || !self.free.remove(number) {
                self.add("the list of free inodes has one that is not free, or twice");
                return Ok(());
            }
            let found = self.store.inode_at(number);
            let Some(Some((_, inode))) = self.note(found) else { return Ok(()) };
            next = inode.next_free.get();
            self.store.nodes.shrink(&self.store.disk)?;
        }
        if !self.free.is_empty() {
            let what = format!("{} free inodes are on no list", self.free.len());
            self.left_over(what);
        }
        Ok(())
    }

    /// The inodes of a block.
    fn inode_block(&mut self, key: Key, block: u64) -> Result<()> {
        self.no_gap(block);
        self.next = block + 1;
        let all = self.store.root()?.inodes.get();
        for within in 0..INODES {
            let number = block * INODES + within;
            let at = At { key, offset: layout::inode_offset(within) };
            let inode: Inode = layout::read(self.store.nodes.bytes(key)?, at.offset);
            match inode.flags().contains(InodeFlags::USED) {
                true if number >= all => {
                    self.add(format!("inode {number} is in use, and there are {all} of them"));
                }
                true => self.one_file(number, at, &inode)?,
                false if number < all => {
                    self.free.insert(number);
                }
                false => {}
            }
        }
        Ok(())
    }

    fn one_file(&mut self, number: u64, at: At, inode: &Inode) -> Result<()> {
        self.file = Some((FileId::new(number, inode.generation.get()), inode.owner.get()));
        self.report.files += 1;
        let tree = crate::files::tree_of(at, inode);
        let (was_partial, mut count) = (std::mem::take(&mut self.is_partial), 0);
        self.walk(tree, inode.size.get().div_ceil(BLOCK as u64), &mut count)?;
        // What could not be read could not be counted.
        if count != inode.blocks.get() && !self.is_partial {
            let said = inode.blocks.get();
            self.add(format!("it has {count} blocks, and counts {said}"));
        }
        self.is_partial |= was_partial;
        if let (lost @ 1.., first, block) = std::mem::take(&mut self.lost) {
            self.add(format!(
                "{lost} blocks of it are lost, from block {first} on: block {block} of the disk led to them, and was damaged"
            ));
        }
        self.file = None;
        Ok(())
    }

    /// Goes through a tree: its blocks are counted, and each must match its checksum.
    fn walk(&mut self, tree: Tree, end: u64, count: &mut u64) -> Result<()> {
        if tree.depth == 0 {
            return Ok(());
        }
        self.walk_below((tree.key, tree.slot), tree, tree.depth - 1, (0, end), count)
    }

    fn walk_below(
        &mut self,
        place: Position,
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
        if pointer.is_lost() {
            let all = first.saturating_add(leaves_of(height + 1)).min(end).saturating_sub(first);
            let (lost, from, block) = self.lost;
            self.lost = match lost {
                0 => (all, first, pointer.block()),
                _ => (lost + all, from, block),
            };
            return Ok(());
        }
        *count += 1;
        if !self.uses(pointer) {
            // It was looked at, by the first way that led to it.
            return Ok(());
        }
        let is_data = height == 0 && tree.leaves != Kind::Inodes;
        match is_data {
            true => self.report.data_blocks += 1,
            false => self.report.metadata_blocks += 1,
        }
        if is_data && first >= end {
            self.add("it has data behind its end");
        }
        if height == 0 && tree.leaves == Kind::Bitmap {
            self.data(pointer, first);
            return Ok(());
        }
        let kind = if height > 0 { Kind::Indirect } else { tree.leaves };
        let Some(child) = self.child(place, kind) else { return Ok(()) };
        if height > 0 {
            let each = leaves_of(height);
            for number in 0..crate::geometry::FANOUT {
                let place = (child, layout::slot(number));
                let start = first + number * each;
                self.walk_below(place, tree, height - 1, (start, end), count)?;
            }
        } else if tree.leaves == Kind::Inodes {
            self.inode_block(child, first)?;
        }
        self.store.nodes.release(child);
        Ok(())
    }

    fn data(&mut self, pointer: Pointer, number: u64) {
        let at = pointer.block();
        (self.progress)(1);
        let block = match self.store.pending(at) {
            Some(content) => Ok(*content),
            None => blocks::read(&self.store.disk, at),
        };
        let Some(block) = self.note(block) else { return };
        if Checksum::of(self.store.seed, &block) != pointer.checksum() {
            self.add(format!(
                "block {number} of it (block {at} of the disk) does not match its checksum"
            ));
        }
    }

    /// Notes that a block is in use; false if it was already.
    fn uses(&mut self, pointer: Pointer) -> bool {
        let [left, right] = self.store.geometry.twins(pointer.block());
        let twins = if pointer.is_twinned() && right != left { 2 } else { 1 };
        let mut is_first = true;
        for block in [left, right].into_iter().take(twins) {
            if !self.used.insert(block) {
                self.add(format!("block {block} of the disk is in use twice"));
                is_first = false;
            }
        }
        is_first
    }
}
