//! Whether a group and its bitmaps make sense together. They are looked at before they become part
//! of a checkpoint, as it must not have what memory has wrong (Loris II-A): a block that is in use
//! and marked as free would be given out once more.

use super::{Key, Nodes, ROOT};
use crate::error::{Error, Result};
use crate::geometry::BITS;
use crate::layout::{self, Group, Kind, Root};
use crate::pointer::Pointer;
use belay_disk::Block;
use std::ops::Range;

impl Nodes {
    /// Looks at the block of a group, and at those of its bitmaps that are in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`] if they cannot be right.
    pub(super) fn check_group(&self, key: Key, block: &Block) -> Result<()> {
        let wrong = |why| Err(Error::Damaged { what: Kind::Group.name(), why });
        let geometry = &self.geometry;
        let group: Group = layout::read(block, 0);
        let number = group.number.get().wrapping_sub(1);
        if number >= geometry.groups() || geometry.group_block(number) != key {
            return wrong("it is another group's");
        }
        // Blocks of files, and how many more may be in use as their bitmaps are not in memory.
        let (mut used, mut unknown) = (0, 0);
        for bitmap in 0..geometry.bitmaps() {
            let pointer = Pointer::read(block, layout::bitmap_slot(bitmap));
            if pointer.is_null() {
                continue;
            }
            let left = geometry.bitmap_block(number, bitmap);
            if pointer.block() != left {
                return wrong("it leads to another bitmap");
            }
            let own = geometry.own_bits(number, bitmap);
            let own_bits: u64 = own.iter().map(|range| range.end - range.start).sum();
            match self.nodes.get(&left) {
                None => unknown += BITS - own_bits,
                Some(node) => {
                    let first = geometry.range_of(number).0 + bitmap * BITS;
                    self.check_bitmap(&node.bytes, first, &own)?;
                    used += ones(&node.bytes) - own_bits;
                }
            }
        }
        let most = geometry.capacity_of(number).saturating_sub(used);
        match (most.saturating_sub(unknown)..=most).contains(&group.free.get()) {
            true => Ok(()),
            false => wrong("it counts other free blocks than its bitmaps have"),
        }
    }

    /// Looks at the bits that are set whatever files there are, of a bitmap block that begins with
    /// block `first`.
    fn check_bitmap(&self, bits: &Block, first: u64, own: &[Range<u64>]) -> Result<()> {
        let root: &Root = self.record(ROOT, 0)?;
        let logs = [(root.log_first, root.log_blocks), (root.intent_first, root.intent_blocks)];
        let logs = logs.map(|(start, count)| {
            let bit = |block: u64| block.saturating_sub(first).min(BITS);
            bit(start.get())..bit(start.get() + count.get())
        });
        match own.iter().chain(&logs).all(|range| are_set(bits, range)) {
            true => Ok(()),
            false => Err(Error::Damaged {
                what: Kind::Bitmap.name(),
                why: "what belongs to no file is free",
            }),
        }
    }
}

fn ones(bits: &Block) -> u64 {
    let (words, _) = bits.as_chunks::<8>();
    words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum()
}

/// Whether all bits of a range are set.
fn are_set(bits: &Block, range: &Range<u64>) -> bool {
    let mut bit = range.start;
    while bit < range.end {
        let byte = bits.get(bit as usize / 8).copied().unwrap_or(0);
        let is_whole = bit.is_multiple_of(8) && range.end - bit >= 8;
        let (mask, step) = if is_whole { (0xff, 8) } else { (1 << (bit % 8), 1) };
        if byte & mask != mask {
            return false;
        }
        bit += step;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{Identity, checkpoints};
    use crate::{Class, FileId, Parameters, Store};
    use belay_disk::{BLOCK, Disk, check_range};
    use std::cell::RefCell;
    use std::io;

    /// A disk in memory.
    struct Memory(RefCell<Vec<u8>>);

    impl Memory {
        fn at(&self, first: u64, bytes: usize) -> io::Result<Range<usize>> {
            check_range(self.blocks(), first, bytes)?;
            let start = first as usize * BLOCK;
            Ok(start..start + bytes)
        }
    }

    impl Disk for Memory {
        fn blocks(&self) -> u64 {
            (self.0.borrow().len() / BLOCK) as u64
        }

        fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
            let range = self.at(first, out.len())?;
            out.copy_from_slice(&self.0.borrow()[range]);
            Ok(())
        }

        fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
            let range = self.at(first, data.len())?;
            self.0.borrow_mut()[range].copy_from_slice(data);
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    static CONTENT: [u8; 5 * BLOCK] = [7; 5 * BLOCK];

    /// A store with a file in its last checkpoint, and more that was written since.
    fn changed(disk: &Memory) -> (Store<&Memory>, FileId) {
        let store = [2; 16];
        let identity = Identity { volume: [1; 16], store, members: vec![store] };
        let parameters = Parameters::default().small();
        let mut store = Store::format(disk, &identity, parameters).unwrap();
        let file = store.create(1, Class::Data, b"").unwrap();
        store.write(file, 0, &CONTENT).unwrap();
        store.set_size(file, CONTENT.len() as u64).unwrap();
        store.checkpoint().unwrap();
        let other = store.create(2, Class::Data, b"").unwrap();
        store.write(other, 0, &CONTENT).unwrap();
        (store, file)
    }

    fn group<'s>(store: &'s mut Store<&Memory>) -> &'s mut Group {
        let key = store.geometry.group_block(0);
        store.nodes.change_record(key, 0).unwrap()
    }

    /// Flips a bit of the first group's bitmap.
    fn flip(store: &mut Store<&Memory>, bit: u64) {
        let key = store.geometry.bitmap_block(0, 0);
        store.nodes.change(key).unwrap()[bit as usize / 8] ^= 1 << (bit % 8);
    }

    /// Makes something wrong in memory.
    type Wrong<'w> = &'w dyn Fn(&mut Store<&Memory>);

    /// Whatever memory has wrong of what is free: the checkpoint is none, and the one before is
    /// there as it was.
    #[test]
    fn a_bitmap_that_is_wrong_in_memory_stops_the_checkpoint() {
        let wrongs: [(&str, Wrong<'_>); 8] = [
            ("a root's bit", &|store| flip(store, 1)),
            ("a bit of the group's own blocks", &|store| flip(store, 64)),
            ("a bit behind the group", &|store| flip(store, 2000)),
            ("a bit of a log", &|store| {
                let first = store.root().unwrap().intent_first.get();
                flip(store, first);
                group(store).free += 1;
            }),
            ("a bit of a block for files", &|store| flip(store, 900)),
            ("one block less", &|store| group(store).free -= 1),
            ("one block more", &|store| group(store).free += 1),
            ("another group's number", &|store| group(store).number = 2.into()),
        ];
        for (what, wrong) in wrongs {
            let disk = Memory(RefCell::new(vec![0; 4000 * BLOCK]));
            let (mut store, file) = changed(&disk);
            let epoch = store.epoch();
            wrong(&mut store);
            let taken = store.checkpoint();
            assert!(matches!(taken, Err(Error::Damaged { .. })), "{what}: {taken:?}");
            assert!(matches!(store.checkpoint(), Err(Error::Failed(_))), "{what}");
            drop(store);
            let found = checkpoints(&&disk).unwrap();
            let mut store = Store::open(&disk, &found[0]).unwrap();
            assert_eq!(store.epoch(), epoch, "{what}: the last checkpoint is the one before");
            let mut content = [0; 5 * BLOCK];
            store.read(file, 0, &mut content).unwrap();
            assert!(content == CONTENT, "{what}");
            assert_eq!(store.check().unwrap().findings, [], "{what}");
        }
        // Without any of that it is taken.
        let disk = Memory(RefCell::new(vec![0; 4000 * BLOCK]));
        let (mut store, _) = changed(&disk);
        store.checkpoint().unwrap();
    }
}
