//! Which blocks are free.
//!
//! A bit in a bitmap block is set for a block that is in use. Bitmaps show what is in use *now*; a
//! block that was in use at the last checkpoint is not given out as well, because that checkpoint
//! may be gone back to (Loris IV-B). So of each bitmap block that was changed since, what it was
//! then is kept.
//!
//! Twins take two blocks at a certain distance, which a store can lack that has many free blocks.
//! So pairs are counted as well, and when there are few of them single blocks are taken from where
//! they break no pair, as long as there are such ([`crate::bounds`]).

mod known;
mod row;

use crate::error::{Error, Result};
use crate::geometry::{BITS, FANOUT};
use crate::layout::{self, Group, Kind};
use crate::nodes::{Key, ROOT};
use crate::store::Store;
use belay_disk::{Block, Disk};
use std::collections::BTreeMap;

/// What is known of free space besides the bitmaps.
#[derive(Debug, Default)]
pub struct Space {
    /// Of each bitmap block that was changed since the last checkpoint: what it was then.
    before: BTreeMap<Key, Box<Block>>,
    /// Blocks that were freed since then, and were in use then.
    freed: u64,
    /// Pairs that are free, and were not then.
    freed_pairs: u64,
    /// What was taken since then, and is in use: single blocks, and pairs.
    taken: (u64, u64),
    /// Where the next block is looked for.
    cursor: u64,
    /// The same for twins.
    pair_cursor: u64,
    /// Free blocks, at most, of which nobody can say where they are: by the first block that a
    /// bitmap which cannot be read is for.
    unknown: BTreeMap<u64, u64>,
}

impl Space {
    /// A checkpoint was taken.
    pub fn checkpointed(&mut self) {
        self.before.clear();
        self.freed = 0;
        self.freed_pairs = 0;
        self.taken = (0, 0);
    }

    /// Single blocks and pairs that were taken since the last checkpoint, and are in use.
    pub fn taken(&self) -> (u64, u64) {
        self.taken
    }

    fn unknown(&self) -> u64 {
        self.unknown.values().sum()
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Any free blocks.
    Any,
    /// Free blocks that break no pair.
    Odd,
    /// The left one of two.
    Twins,
}

impl<D: Disk> Store<D> {
    /// The bitmap block with the bit of `block`; it is made if there is none.
    fn bitmap_of(&mut self, block: u64) -> Result<Key> {
        let geometry = self.geometry;
        let group = geometry.group_of(block);
        let group_key = self.group(group)?;
        let number = block % geometry.parameters.group_blocks / BITS;
        let slot = layout::bitmap_slot(number);
        if let Some(key) = self.nodes.child(&self.disk, group_key, slot, Kind::Bitmap)? {
            return Ok(key);
        }
        let left = geometry.bitmap_block(group, number);
        let key = self.nodes.make(group_key, slot, Kind::Bitmap, left)?;
        let first = group * geometry.parameters.group_blocks + number * BITS;
        let bytes = self.nodes.change(key)?;
        for bit in (0..BITS).filter(|bit| geometry.is_reserved(first + bit)) {
            set(bytes, bit, true);
        }
        // What is behind the end of the group belongs to nobody.
        for bit in geometry.parameters.group_blocks.min(BITS)..BITS {
            set(bytes, bit, true);
        }
        let before = Box::new(*bytes);
        if !geometry.parameters.frees_at_once {
            self.space.before.insert(key, before);
        }
        Ok(key)
    }

    /// The block of a group; it is made if there is none.
    fn group(&mut self, group: u64) -> Result<Key> {
        let geometry = self.geometry;
        let index = group / FANOUT;
        let slot = layout::index_slot(index);
        let index_key = match self.nodes.child(&self.disk, ROOT, slot, Kind::Index)? {
            Some(key) => key,
            None => self.nodes.make(ROOT, slot, Kind::Index, geometry.index_block(index))?,
        };
        let slot = layout::slot(group % FANOUT);
        if let Some(key) = self.nodes.child(&self.disk, index_key, slot, Kind::Group)? {
            let found: &Group = self.nodes.record(key, 0)?;
            return match found.number.get() == group + 1 {
                true => Ok(key),
                false => {
                    Err(Error::Damaged { what: "a group block", why: "it is another group's" })
                }
            };
        }
        let key = self.nodes.make(index_key, slot, Kind::Group, geometry.group_block(group))?;
        let new = Group { number: (group + 1).into(), free: geometry.capacity_of(group).into() };
        *self.nodes.change_record(key, 0)? = new;
        Ok(key)
    }

    /// How many blocks of a group are free. A group without a block of its own is not made one.
    fn free_of(&mut self, group: u64) -> Result<u64> {
        match self.known_group(group)? {
            Some(key) => Ok(self.nodes.record::<Group>(key, 0)?.free.get()),
            None => Ok(self.geometry.capacity_of(group)),
        }
    }

    /// The block of a group; `None` if it was not written yet.
    fn known_group(&mut self, group: u64) -> Result<Option<Key>> {
        let slot = layout::index_slot(group / FANOUT);
        let Some(index) = self.nodes.child(&self.disk, ROOT, slot, Kind::Index)? else {
            return Ok(None);
        };
        self.nodes.child(&self.disk, index, layout::slot(group % FANOUT), Kind::Group)
    }

    /// Free blocks, those included that can be used after the next checkpoint only.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn free_blocks(&self) -> Result<u64> {
        Ok(self.root()?.free_blocks.get())
    }

    /// Blocks that can be used now. Not all of them can be where they are needed: twins take two at
    /// a certain distance.
    ///
    /// # Errors
    /// As for [`Store::free_blocks`].
    pub fn available_blocks(&self) -> Result<u64> {
        Ok(self.free_blocks()?.saturating_sub(self.space.freed + self.space.unknown()))
    }

    /// Pairs of blocks that can be used now for twins.
    ///
    /// # Errors
    /// As for [`Store::free_blocks`].
    pub fn available_pairs(&self) -> Result<u64> {
        let not_now = self.space.freed_pairs + self.space.unknown() / 2;
        Ok(self.root()?.free_pairs.get().saturating_sub(not_now))
    }

    /// Blocks for files, free or in use.
    pub fn capacity(&self) -> u64 {
        self.geometry.capacity()
    }

    /// Marks a block as in use or free, and counts it; gives whether it was in use at the last
    /// checkpoint.
    fn mark(&mut self, block: u64, in_use: bool) -> Result<bool> {
        if self.is_nobodys(block)? {
            return Err(Error::Damaged { what: "a bitmap block", why: "it has a bit wrong" });
        }
        let bitmap = match self.bitmap_of(block) {
            // It stays in use for ever.
            Err(why) if why.is_unreadable() && !in_use => {
                self.give_up()?;
                return Ok(true);
            }
            found => found?,
        };
        let group = self.group(self.geometry.group_of(block))?;
        let bit = block % self.geometry.parameters.group_blocks % BITS;
        let bytes = self.nodes.bytes(bitmap)?;
        if get(bytes, bit) == in_use {
            return Err(Error::Damaged { what: "a bitmap block", why: "it has a bit wrong" });
        }
        if !self.geometry.parameters.frees_at_once && !self.space.before.contains_key(&bitmap) {
            self.space.before.insert(bitmap, Box::new(*bytes));
        }
        let partner = self.geometry.partner(block) % self.geometry.parameters.group_blocks % BITS;
        // Its pair is free when it is free, if the other one is.
        let is_pair = partner == bit || !get(bytes, partner);
        let before = self.space.before.get(&bitmap);
        let was_in_use = |bit| before.is_some_and(|before| get(before, bit));
        let (freed, freed_pair) = (was_in_use(bit), was_in_use(bit) || was_in_use(partner));
        self.space.freed += u64::from(!in_use && freed);
        if is_pair && freed_pair {
            let pairs = self.space.freed_pairs;
            // What was in use then is not given out now: it becomes free, or was never counted.
            self.space.freed_pairs = if in_use { pairs.saturating_sub(1) } else { pairs + 1 };
        }
        set(self.nodes.change(bitmap)?, bit, in_use);
        let one = if in_use { -1 } else { 1 };
        let group: &mut Group = self.nodes.change_record(group, 0)?;
        group.free = group.free.get().wrapping_add_signed(one).into();
        let root = self.root_mut()?;
        root.free_blocks = root.free_blocks.get().wrapping_add_signed(one).into();
        if is_pair {
            root.free_pairs = root.free_pairs.get().wrapping_add_signed(one).into();
        }
        Ok(freed)
    }

    /// Whether a block belongs to no file, whatever a bitmap says of it: it is in a fixed place, or
    /// in one of the logs.
    fn is_nobodys(&self, block: u64) -> Result<bool> {
        let root = self.root()?;
        let is_in = |first: u64, count: u64| block.wrapping_sub(first) < count;
        Ok(self.geometry.is_reserved(block)
            || is_in(root.log_first.get(), root.log_blocks.get())
            || is_in(root.intent_first.get(), root.intent_blocks.get()))
    }

    /// Frees a block that has one place.
    pub(crate) fn free(&mut self, block: u64) -> Result<()> {
        self.resync.forget(block);
        let was_in_use = self.mark(block, false)?;
        let taken = &mut self.space.taken.0;
        *taken = taken.saturating_sub(u64::from(!was_in_use));
        Ok(())
    }

    /// Frees both places of a block.
    pub(crate) fn free_twins(&mut self, left: u64) -> Result<()> {
        let [left, right] = self.geometry.twins(left);
        let was_in_use = self.mark(left, false)?;
        if left != right {
            self.mark(right, false)?;
        }
        let taken = &mut self.space.taken.1;
        *taken = taken.saturating_sub(u64::from(!was_in_use));
        Ok(())
    }

    /// Takes up to `want` free blocks that follow each other; gives the first, and how many they
    /// are.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; those of the disk.
    pub(crate) fn take(&mut self, want: u64) -> Result<(u64, u64)> {
        let (first, count) = self.find_singles(want)?;
        for block in first..first + count {
            self.mark(block, true)?;
        }
        self.space.cursor = first + count;
        self.space.taken.0 += count;
        Ok((first, count))
    }

    fn find_singles(&mut self, want: u64) -> Result<(u64, u64)> {
        let (offset, pairs) = (self.geometry.parameters.twin_offset, self.available_pairs()?);
        let from = self.space.cursor;
        if offset == 0 || pairs > self.geometry.kept_pairs() + want {
            return self.find(from, want, Wanted::Any);
        }
        // There are few pairs.
        if self.available_blocks()? > 2 * pairs {
            match self.find(from, want, Wanted::Odd) {
                Err(Error::NoSpace) => {}
                found => return found,
            }
        }
        // All that is left is pairs. The other halves of what is broken here are taken before any
        // other pair is.
        self.find(from, want.min(offset), Wanted::Any)
    }

    /// Takes two places for a block; gives the left one.
    ///
    /// # Errors
    /// As for [`Store::take`].
    pub(crate) fn take_twins(&mut self) -> Result<u64> {
        let (left, _) = self.find(self.space.pair_cursor, 1, Wanted::Twins)?;
        self.space.pair_cursor = left + 1;
        self.space.taken.1 += 1;
        let [left, right] = self.geometry.twins(left);
        self.mark(left, true)?;
        if left != right {
            self.mark(right, true)?;
        }
        Ok(left)
    }

    /// Finds up to `want` blocks in a row that can be given out, or the left one of two.
    fn find(&mut self, from: u64, want: u64, wanted: Wanted) -> Result<(u64, u64)> {
        let geometry = self.geometry;
        let groups = geometry.groups();
        let start = geometry.group_of(from) % groups;
        // The group that is begun with is looked at twice: from there on, and in the end from its
        // start on.
        for round in 0..=groups {
            let group = (start + round) % groups;
            let (first, end) = geometry.range_of(group);
            let free = match self.free_of(group) {
                Err(why) if why.is_unreadable() => {
                    self.space.unknown.insert(first, geometry.capacity_of(group));
                    continue;
                }
                free => free?,
            };
            if free == 0 {
                continue;
            }
            let mut at = if round == 0 { from.clamp(first, end) } else { first };
            while at < end {
                let stop = (at / BITS + 1) * BITS;
                // Where groups are smaller than what a bitmap block has bits for, there is one of
                // them in each group.
                let stop = if geometry.bitmaps() == 1 { end } else { stop.min(end) };
                let Some(bitmap) = self.known_bitmap(at, first, free)? else {
                    at = stop;
                    continue;
                };
                if let Some(found) = self.find_in(bitmap, at, stop, want, wanted)? {
                    return Ok(found);
                }
                at = stop;
            }
        }
        Err(Error::NoSpace)
    }

    /// The same among blocks whose bits are in one bitmap block. Twins are not looked for across
    /// two.
    fn find_in(
        &mut self,
        bitmap: Key,
        start: u64,
        stop: u64,
        want: u64,
        wanted: Wanted,
    ) -> Result<Option<(u64, u64)>> {
        let geometry = self.geometry;
        let now = self.nodes.bytes(bitmap)?;
        let before = self.space.before.get(&bitmap).map_or(now, |before| before);
        let bit = |block: u64| block % geometry.parameters.group_blocks % BITS;
        let is_free =
            |block: u64| block < stop && !get(now, bit(block)) && !get(before, bit(block));
        let fits = |block: u64| {
            let partner = geometry.partner(block);
            is_free(block)
                && match wanted {
                    Wanted::Any => true,
                    Wanted::Odd => !is_free(partner),
                    Wanted::Twins => partner >= block && is_free(partner),
                }
        };
        let full = |block: u64| {
            let byte = bit(block) as usize / 8;
            let of = |bytes: &Block| bytes.get(byte).copied().unwrap_or(0xff);
            of(now) | of(before) == 0xff
        };
        let mut at = start;
        while at < stop {
            if at.is_multiple_of(8) && full(at) {
                at += 8;
                continue;
            }
            let end = if wanted == Wanted::Twins { at + 1 } else { stop.min(at + want) };
            let length = (at..end).take_while(|block| fits(*block)).count() as u64;
            if length > 0 {
                return Ok(Some((at, length)));
            }
            at += 1;
        }
        Ok(None)
    }
}

pub(crate) fn get(block: &Block, bit: u64) -> bool {
    block.get(bit as usize / 8).is_none_or(|byte| byte & (1 << (bit % 8)) != 0)
}

fn set(block: &mut Block, bit: u64, on: bool) {
    if let Some(byte) = block.get_mut(bit as usize / 8) {
        let mask = 1 << (bit % 8);
        *byte = if on { *byte | mask } else { *byte & !mask };
    }
}
