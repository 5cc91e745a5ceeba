//! Whether what is in use is marked as such, and nothing else; and whether it was counted rightly.

use super::Checker;
use crate::error::Result;
use crate::geometry::{BITS, FANOUT};
use crate::layout::{self, Group, Kind};
use crate::nodes::{Key, ROOT};
use belay_disk::Disk;

/// What bitmaps and trees do not agree about.
#[derive(Default)]
struct Wrong {
    /// Blocks that are marked as in use, and nothing leads to.
    lost: u64,
    first_lost: u64,
    /// Blocks that are in use, and marked as free.
    open: u64,
    first_open: u64,
}

impl Wrong {
    fn add(&mut self, block: u64, is_marked: bool) {
        let (count, first) = match is_marked {
            true => (&mut self.lost, &mut self.first_lost),
            false => (&mut self.open, &mut self.first_open),
        };
        if *count == 0 {
            *first = block;
        }
        *count += 1;
    }
}

impl<D: Disk> Checker<'_, D> {
    pub(super) fn space(&mut self) -> Result<()> {
        let geometry = self.store.geometry;
        // Trees that could not be read may lead to anything that is marked.
        let is_known = !self.is_partial;
        self.is_partial = false;
        let (mut all, mut wrong) = (0, Wrong::default());
        for index in 0..geometry.indexes() {
            let key = self.child((ROOT, layout::index_slot(index)), Kind::Index);
            let groups = index * FANOUT..geometry.groups().min((index + 1) * FANOUT);
            for group in groups {
                let place = key.map(|key| (key, layout::slot(group % FANOUT)));
                let block = place.and_then(|place| self.child(place, Kind::Group));
                all += match block {
                    Some(block) => self.group(group, block, &mut wrong)?,
                    None => {
                        let (start, end) = geometry.range_of(group);
                        self.unmarked(start, end, &mut wrong);
                        geometry.capacity_of(group)
                    }
                };
            }
            key.into_iter().for_each(|key| self.store.nodes.release(key));
        }
        self.tell(&wrong, is_known);
        if self.store.free_blocks()? != all && !self.is_partial {
            self.add("the root counts the free blocks wrong");
        }
        let agree = is_known && !self.is_partial && wrong.lost == 0 && wrong.open == 0;
        if agree && self.store.root()?.free_pairs.get() != self.free_pairs() {
            self.add("the root counts the free pairs wrong");
        }
        Ok(())
    }

    /// How many pairs are free, if what nothing leads to is free.
    fn free_pairs(&self) -> u64 {
        let geometry = self.store.geometry;
        let is_free = |block| !geometry.is_reserved(block) && !self.used.contains(block);
        let groups = (0..geometry.groups()).map(|group| geometry.range_of(group));
        let blocks = groups.flat_map(|(start, end)| start..end);
        let is_pair = |block: &u64| {
            let partner = geometry.partner(*block);
            partner >= *block && is_free(*block) && is_free(partner)
        };
        blocks.filter(is_pair).count() as u64
    }

    fn tell(&mut self, wrong: &Wrong, is_known: bool) {
        let Wrong { lost, first_lost, open, first_open } = wrong;
        if *lost > 0 {
            let what = format!(
                "{lost} blocks are marked as in use, and nothing leads to them (the first one is block {first_lost} of the disk)"
            );
            match is_known {
                true => self.left_over(what),
                false => {
                    self.report.notes.push(format!("{what}: they are those of what is damaged"))
                }
            }
        }
        if *open > 0 {
            self.add(format!(
                "{open} blocks are in use, and marked as free (the first one is block {first_open} of the disk)"
            ));
        }
    }

    /// Looks at the blocks of a group; gives how many of them are free.
    fn group(&mut self, group: u64, block: Key, wrong: &mut Wrong) -> Result<u64> {
        let geometry = self.store.geometry;
        let (start, end) = geometry.range_of(group);
        let counted: Group = *self.store.nodes.record(block, 0)?;
        if counted.number.get() != group + 1 {
            self.add(format!("the block of group {group} is another group's"));
        }
        let (mut free, was_partial) = (0, std::mem::take(&mut self.is_partial));
        for number in 0..geometry.bitmaps() {
            let first = start + number * BITS;
            let last = end.min(first + BITS);
            match self.child((block, layout::bitmap_slot(number)), Kind::Bitmap) {
                Some(bitmap) => {
                    free += self.bitmap(bitmap, first, last, wrong)?;
                    self.store.nodes.release(bitmap);
                }
                // One that cannot be read says nothing.
                None if self.is_partial => {}
                None => {
                    self.unmarked(first, last, wrong);
                    let is_free = |block: &u64| !geometry.is_reserved(*block);
                    free += (first..last).filter(is_free).count() as u64;
                }
            }
        }
        if counted.free.get() != free && !self.is_partial {
            self.add(format!("group {group} counts its free blocks wrong"));
        }
        self.is_partial |= was_partial;
        self.store.nodes.release(block);
        Ok(free)
    }

    /// Looks at the bits of a bitmap block; gives how many blocks are free.
    fn bitmap(&mut self, bitmap: Key, first: u64, last: u64, wrong: &mut Wrong) -> Result<u64> {
        let geometry = self.store.geometry;
        let bytes = self.store.nodes.bytes(bitmap)?;
        let mut free = 0;
        for block in first..last {
            let is_marked = crate::space::get(bytes, block - first);
            let is_used = geometry.is_reserved(block) || self.used.contains(block);
            if is_marked != is_used {
                wrong.add(block, is_marked);
            }
            free += u64::from(!is_marked);
        }
        Ok(free)
    }

    /// These blocks are all marked as free.
    fn unmarked(&mut self, first: u64, last: u64, wrong: &mut Wrong) {
        // Where nothing could be read nothing is known.
        if !self.is_partial {
            let mut used = self.used.iter();
            used.advance_to(first);
            used.take_while(|block| *block < last).for_each(|block| wrong.add(block, false));
        }
    }
}
