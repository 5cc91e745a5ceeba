//! How the blocks of a file are found: a tree of indirect blocks of one depth, whose top is in the
//! file's inode. A pointer to nothing stands for zeros, in the tree as well.

use crate::error::{Error, Result};
use crate::geometry::FANOUT;
use crate::layout::{self, DEPTH, Kind};
use crate::nodes::Key;
use crate::pointer::Pointer;
use crate::store::Store;
use belay_disk::Disk;

/// A tree: where the pointer to its top is, and how many levels it has. One of depth 1 is a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    pub key: Key,
    pub slot: usize,
    pub depth: u32,
    /// What its leaves are.
    pub leaves: Kind,
    /// From which leaf on there are none.
    pub end: u64,
}

/// Where the pointer to a leaf is.
pub type Position = (Key, usize);

/// How many leaves a tree of that depth can have.
pub fn leaves_of(depth: u32) -> u64 {
    match depth {
        0 => 0,
        depth => FANOUT.saturating_pow(depth - 1),
    }
}

impl<D: Disk> Store<D> {
    /// Where the pointer to a leaf is; `None` if nothing leads there.
    pub(crate) fn place_of(&mut self, tree: Tree, leaf: u64) -> Result<Option<Position>> {
        if leaf >= leaves_of(tree.depth) {
            return Ok(None);
        }
        let (mut key, mut slot) = (tree.key, tree.slot);
        for height in (1..tree.depth).rev() {
            match self.nodes.child(&self.disk, key, slot, Kind::Indirect)? {
                None => return Ok(None),
                Some(child) => key = child,
            }
            slot = layout::slot(leaf / leaves_of(height) % FANOUT);
        }
        Ok(Some((key, slot)))
    }

    /// Where the pointer to a leaf is. What leads there is made if it is not there; `count` counts
    /// its blocks, twins once.
    pub(crate) fn make_place(
        &mut self,
        tree: &mut Tree,
        leaf: u64,
        count: &mut u64,
    ) -> Result<Position> {
        if leaf >= leaves_of(DEPTH) {
            return Err(Error::TooLarge);
        }
        while leaf >= leaves_of(tree.depth) {
            self.deepen(tree, count)?;
        }
        let (mut key, mut slot) = (tree.key, tree.slot);
        for height in (1..tree.depth).rev() {
            let each = leaves_of(height);
            let first = leaf / (each * FANOUT) * (each * FANOUT);
            key = match self.indirect((key, slot), *tree, height, first, count)? {
                Some(child) => child,
                None => self.make_indirect(key, slot, count)?,
            };
            slot = layout::slot(leaf / each % FANOUT);
        }
        Ok((key, slot))
    }

    pub(crate) fn make_indirect(&mut self, key: Key, slot: usize, count: &mut u64) -> Result<Key> {
        let left = self.take_twins()?;
        *count += 1;
        self.nodes.make(key, slot, Kind::Indirect, left)
    }

    /// Puts a level above a tree.
    fn deepen(&mut self, tree: &mut Tree, count: &mut u64) -> Result<()> {
        if tree.depth > 0 && !self.nodes.pointer(tree.key, tree.slot)?.is_null() {
            let left = self.take_twins()?;
            *count += 1;
            self.nodes.put_above((tree.key, tree.slot), left)?;
        }
        tree.depth += 1;
        Ok(())
    }

    /// Removes all leaves of a tree from `from` on up to but not including `to`, and the indirect
    /// blocks that lead to nothing then. What goes is counted.
    pub(crate) fn cut(&mut self, tree: Tree, from: u64, to: u64, count: &mut u64) -> Result<()> {
        let to = to.min(leaves_of(tree.depth));
        if from < to {
            self.cut_below((tree.key, tree.slot), tree, tree.depth - 1, 0, (from, to), count)?;
        }
        Ok(())
    }

    /// The same for what the pointer at `place` leads to, whose first leaf is `first`.
    fn cut_below(
        &mut self,
        place: Position,
        tree: Tree,
        height: u32,
        first: u64,
        range: (u64, u64),
        count: &mut u64,
    ) -> Result<()> {
        let (key, slot) = place;
        let pointer = self.nodes.pointer(key, slot)?;
        if pointer.is_null() {
            return Ok(());
        }
        let all = range.0 <= first && first.saturating_add(leaves_of(height + 1)) <= range.1;
        if pointer.is_lost() {
            // Where some of it is to stay, all does: this must not take room.
            return if all { self.nodes.set(key, slot, Pointer::default()) } else { Ok(()) };
        }
        if height > 0 && all && self.is_unreadable(place) {
            self.give_up()?;
        } else if height > 0 {
            let Some(child) = self.indirect(place, tree, height, first, &mut 0)? else {
                return Ok(());
            };
            let each = leaves_of(height);
            let mut is_empty = true;
            for number in 0..FANOUT {
                let start = first + number * each;
                let place = (child, layout::slot(number));
                if start < range.1 && start + each > range.0 {
                    self.cut_below(place, tree, height - 1, start, range, count)?;
                }
                is_empty &= self.nodes.pointer(child, layout::slot(number))?.is_null();
            }
            if !is_empty {
                return Ok(());
            }
        }
        self.nodes.remove(key, slot)?;
        *count += 1;
        match pointer.is_twinned() {
            true => self.free_twins(pointer.block()),
            false => self.free(pointer.block()),
        }
    }

    /// The leaves of a tree that there are, from `from` on, at most `most` of them, each with where
    /// its pointer is.
    pub(crate) fn leaves(
        &mut self,
        tree: Tree,
        from: u64,
        most: usize,
    ) -> Result<Vec<(u64, Position)>> {
        let mut found = Vec::new();
        if tree.depth > 0 {
            let top = (tree.key, tree.slot);
            self.leaves_below(top, tree.depth - 1, 0, from, most, &mut found)?;
        }
        Ok(found)
    }

    fn leaves_below(
        &mut self,
        place: Position,
        height: u32,
        first: u64,
        from: u64,
        most: usize,
        found: &mut Vec<(u64, Position)>,
    ) -> Result<()> {
        let (key, slot) = place;
        if found.len() >= most || self.nodes.pointer(key, slot)?.is_null() {
            return Ok(());
        }
        if height == 0 {
            // Of a tree of depth 1 nothing above has looked at this.
            if first >= from {
                found.push((first, place));
            }
            return Ok(());
        }
        let Some(child) = self.nodes.child(&self.disk, key, slot, Kind::Indirect)? else {
            return Ok(());
        };
        let each = leaves_of(height);
        for number in 0..FANOUT {
            let start = first + number * each;
            if start + each > from {
                let place = (child, layout::slot(number));
                self.leaves_below(place, height - 1, start, from, most, found)?;
            }
        }
        Ok(())
    }
}
