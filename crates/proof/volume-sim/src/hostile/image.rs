//! A volume on a disk, any block of which says something else, with checksums that are right or
//! wrong.

mod checksums;

use super::{Bytes, change, fill, page_of, use_all};
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use belay_cache::appended::{Part, append};
use belay_cache::intent::{replay, waiting};
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_disk::{BLOCK, Block, Disk, ZEROS, check_range};
use belay_logical::Logical;
use belay_object::{Lower, ObjectId};
use belay_store::{DataMode, Parameters, intent, layout, resync, root};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const CAPACITY: Capacity = Capacity { frames: 96, slots: 24 };
const BLOCKS: u64 = 1024;
/// Blocks that a store keeps in memory: all of these.
const MEMORY: usize = 4000;

/// A disk that says what it was told to say, and keeps what is written to it.
#[derive(Debug)]
pub struct CorruptDisk<'b> {
    base: &'b [Block],
    now: RefCell<BTreeMap<u64, Box<Block>>>,
    /// Whether it is in use, and nothing is written by whoever corrupts it.
    is_used: bool,
}

impl<'b> CorruptDisk<'b> {
    fn new(base: &'b [Block]) -> Self {
        Self { base, now: RefCell::default(), is_used: false }
    }

    fn get(&self, block: u64) -> Block {
        let now = self.now.borrow();
        let base = self.base.get(block as usize).copied().unwrap_or(ZEROS);
        now.get(&block).map_or(base, |block| **block)
    }

    fn put(&self, block: u64, content: &Block) {
        self.now.borrow_mut().insert(block, Box::new(*content));
    }
}

impl Disk for CorruptDisk<'_> {
    fn blocks(&self) -> u64 {
        self.base.len() as u64
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        check_range(self.blocks(), first, out.len())?;
        let (blocks, _) = out.as_chunks_mut::<BLOCK>();
        for (number, block) in (first..).zip(blocks) {
            *block = self.get(number);
        }
        Ok(())
    }

    fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.blocks(), first, data.len())?;
        let (blocks, _) = data.as_chunks::<BLOCK>();
        for (number, block) in (first..).zip(blocks) {
            let is_nobodys = number == 0 || (3..8).contains(&number);
            assert!(!self.is_used || !is_nobodys, "block {number} is written to");
            self.put(number, block);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The disks of a volume that is whole.
#[derive(Clone, Debug)]
struct Image {
    disks: Vec<Vec<Block>>,
    /// The blocks that hold something: on which disk, and which.
    used: Vec<(usize, u64)>,
    /// Pages of files that can be read.
    readable: usize,
}

impl Image {
    fn new(parameters: Parameters, count: u8) -> Self {
        let power = Power::default();
        let disks: Vec<_> = (0..count).map(|_| SimDisk::with(BLOCKS, &power)).collect();
        let named = (1..).map(|name| [name; 16]).zip(&disks).collect();
        let mut below = Logical::format([9; 16], named, parameters).expect("disks that are whole");
        let layout = Layout::new(CAPACITY);
        let shared = Shared::new(SimMemory::new(layout.words), layout);
        let room = below.room().expect("a volume that is whole");
        shared.initialize(below.epoch() - 1, 0, &room);
        fill(&shared, &mut below);
        change(&shared, &mut below);
        let all: Vec<_> = (0..40).map(ObjectId).collect();
        let cleaner = Cleaner::new(shared);
        assert!(cleaner.sync(&mut below, &all).expect("a sync"), "the intent log has room");
        if parameters.data == DataMode::InPlace {
            // The log of what is overwritten, a flush, and some of that.
            power.end_at(Some(power.steps() + 3));
            assert!(cleaner.checkpoint(&mut below).is_err(), "the power fails");
        }
        drop(below);
        let read = |disk: &SimDisk| {
            let mut all = vec![ZEROS; BLOCKS as usize];
            disk.read(0, all.as_flattened_mut()).expect("all of the disk");
            all
        };
        let disks: Vec<Vec<Block>> = disks.iter().map(read).collect();
        let of = |(number, disk): (usize, &Vec<Block>)| {
            let used = (0..).zip(disk).filter(|(_, block)| **block != ZEROS);
            used.map(|(block, _)| (number, block)).collect::<Vec<_>>()
        };
        let used = disks.iter().enumerate().flat_map(of).collect();
        let readable = use_disks(&in_use(&disks), MEMORY, true);
        Self { disks, used, readable }
    }
}

/// Volumes that are whole.
#[derive(Clone, Debug)]
pub struct World {
    images: Vec<Image>,
}

impl World {
    /// One of each kind: with data out of place, in place and in the middle of overwriting, and on
    /// two disks.
    pub fn new() -> Self {
        let small = |twin_offset, data| Parameters {
            twin_offset,
            group_blocks: 256,
            data,
            ..Parameters::default()
        };
        let images = vec![
            Image::new(small(4, DataMode::OutOfPlace), 1),
            Image::new(small(16, DataMode::InPlace), 1),
            Image::new(small(8, DataMode::OutOfPlace), 2),
        ];
        Self { images }
    }

    /// The blocks that hold something on the first volume.
    pub fn blocks(&self) -> usize {
        self.images.first().map_or(0, |image| image.used.len())
    }

    /// Uses a volume after these bytes have said what is wrong with it.
    pub fn use_with(&self, data: &[u8]) {
        let mut bytes = Bytes::new(data);
        let how = bytes.byte();
        let Some(image) = self.images.get(usize::from(how) % self.images.len()) else { return };
        let is_fixed = how & 0x80 != 0;
        let mut disks: Vec<_> = image.disks.iter().map(|disk| CorruptDisk::new(disk)).collect();
        if how & 0x40 != 0 {
            append_intent(&disks, &mut bytes);
        }
        let is_copied = corrupt(image, &disks, &mut bytes);
        if is_fixed {
            disks.iter().for_each(checksums::fix);
        }
        disks.iter_mut().for_each(|disk| disk.is_used = true);
        let memory = if how & 0x20 != 0 { 8 } else { MEMORY };
        // An old block, or one that was meant for another place, may be right.
        let is_whole = !is_fixed && !is_copied && how & 0x40 == 0;
        use_disks(&disks, memory, is_whole);
    }

    /// Uses the first volume with these bytes in these blocks: in which, where in it, and what.
    pub fn use_written(&self, written: &[(u64, usize, &[u8])]) {
        let Some(image) = self.images.first() else { return };
        let mut disks: Vec<_> = image.disks.iter().map(|disk| CorruptDisk::new(disk)).collect();
        for disk in &mut disks {
            for (block, at, bytes) in written {
                let mut content = disk.get(*block);
                content.get_mut(*at..*at + bytes.len()).unwrap_or_default().copy_from_slice(bytes);
                disk.put(*block, &content);
            }
            checksums::fix(disk);
            disk.is_used = true;
        }
        use_disks(&disks, MEMORY, false);
    }

    /// How many bytes there are in the blocks of all volumes that hold something.
    pub fn bytes(&self) -> usize {
        self.images.iter().map(|image| image.used.len() * BLOCK).sum()
    }

    /// Uses a volume one of whose bytes is wrong. Nothing is given out that nobody wrote, and if a
    /// check finds nothing, all can be read that could be before. Tells whether a check has found
    /// something.
    pub fn use_with_wrong_byte(&self, number: usize, xor: u8) -> bool {
        let mut block = number / BLOCK;
        for image in &self.images {
            let Some((on, place)) = image.used.get(block) else {
                block -= image.used.len();
                continue;
            };
            let disks = in_use(&image.disks);
            let Some(disk) = disks.get(*on) else { return false };
            let mut content = disk.get(*place);
            content.get_mut(number % BLOCK).into_iter().for_each(|byte| *byte ^= xor);
            disk.put(*place, &content);
            let is_found = finds(&disks);
            let read = use_disks(&disks, MEMORY, true);
            assert!(
                is_found || read == image.readable,
                "byte {} of block {place} of disk {on}: a check finds nothing, and {read} of {} pages can be read",
                number % BLOCK,
                image.readable
            );
            return is_found;
        }
        false
    }

    /// Changes a byte at some place of some block, with checksums that are right then or not. Tells
    /// whether a check says so.
    pub fn is_found(&self, block: usize, at: usize, xor: u8, is_fixed: bool) -> bool {
        let Some(image) = self.images.first() else { return false };
        let disks: Vec<_> = image.disks.iter().map(|disk| CorruptDisk::new(disk)).collect();
        let (Some(disk), Some((_, block))) = (disks.first(), image.used.get(block)) else {
            return false;
        };
        let mut content = disk.get(*block);
        content.get_mut(at).into_iter().for_each(|byte| *byte ^= xor);
        disk.put(*block, &content);
        if is_fixed {
            checksums::fix(disk);
        }
        finds(&disks)
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

/// Disks that hold that, and are in use.
fn in_use(disks: &[Vec<Block>]) -> Vec<CorruptDisk<'_>> {
    disks.iter().map(|disk| CorruptDisk { is_used: true, ..CorruptDisk::new(disk) }).collect()
}

/// Whether a check has something to say.
fn finds(disks: &[CorruptDisk<'_>]) -> bool {
    let Ok(mut lower) = Logical::open(disks.iter().collect()) else { return true };
    let Ok(found) = lower.check(&mut |_| {}) else { return true };
    let objects = found.objects.iter();
    let named = belay_posix::check::check(&mut lower, objects, &BTreeSet::new(), &mut |_| {});
    let notes = found.stores.iter().any(|one| !one.notes.is_empty());
    notes || !found.findings.is_empty() || !named.findings.is_empty()
}

/// Appends operations to the intent log that nobody would.
fn append_intent(disks: &[CorruptDisk<'_>], bytes: &mut Bytes<'_>) {
    let Ok(mut lower) = Logical::open(disks.iter().collect()) else { return };
    let mut all = Vec::new();
    for _ in 0..1 + bytes.byte() % 3 {
        let number = lower.upto().wrapping_add(bytes.number());
        let length = usize::from(bytes.byte()) * 4;
        let part =
            Part { number: number >> 1, is_data: number & 1 != 0, bytes: bytes.take(length) };
        append(&mut all, &part);
    }
    let _ = lower.append_intent(&all);
}

/// Changes words of blocks, or copies them to others; tells whether it has copied some.
fn corrupt(image: &Image, disks: &[CorruptDisk<'_>], bytes: &mut Bytes<'_>) -> bool {
    let mut is_copied = false;
    while !bytes.is_empty() {
        let kind = bytes.byte();
        let Some(&(on, block)) = image.used.get(bytes.below(image.used.len())) else { break };
        let Some(disk) = disks.get(on) else { break };
        let mut content = disk.get(block);
        if kind < 16 {
            let to = bytes.below(BLOCKS as usize) as u64;
            disk.put(to, &content);
            is_copied = true;
            continue;
        }
        let at = match kind {
            16..128 => bytes.below(BLOCK / 8) * 8,
            128..200 => bytes.below(32) * 8,
            _ => bytes.below(BLOCK - 7),
        };
        let word = bytes.number();
        let word = match kind % 4 {
            // That of another place: so some of it makes sense.
            0 => {
                let from = bytes.below(BLOCK / 8) * 8;
                layout::read::<[u8; 8]>(&content, from)
            }
            1 => (u64::from_le_bytes(layout::read(&content, at)) ^ word).to_le_bytes(),
            _ => word.to_le_bytes(),
        };
        layout::write(&mut content, at, &word);
        disk.put(block, &content);
        // Both copies of a root say the same, or one of them is not looked at.
        let roots = [(1, BLOCKS - 1), (2, BLOCKS - 2), (BLOCKS - 1, 1), (BLOCKS - 2, 2)];
        if kind & 0x10 != 0
            && let Some((_, other)) = roots.into_iter().find(|(one, _)| *one == block)
        {
            disk.put(other, &content);
        }
    }
    is_copied
}

/// Does what all processes of a volume do with its disks, and what a check and a dump do. Tells how
/// many pages of files could be read.
fn use_disks(disks: &[CorruptDisk<'_>], memory: usize, is_whole: bool) -> usize {
    look(disks, memory);
    let Ok(mut below) = Logical::open(disks.iter().collect()) else { return 0 };
    below.stores().for_each(|store| store.limit_memory(memory));
    let _ = waiting(&mut below);
    let Ok(first) = replay(&mut below) else { return 0 };
    let Ok(room) = below.room() else { return 0 };
    let layout = Layout::new(CAPACITY);
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    shared.initialize(below.epoch().saturating_sub(1), first, &room);
    let cleaner = Cleaner::new(shared.clone());
    let attached = Publisher::attach::<<Logical<&CorruptDisk<'_>> as Lower>::Error>(shared, 1);
    let Ok(publisher) = attached else { return 0 };
    let mut publisher = publisher.keeping(1 << 20);
    let mut read = 0;
    use_all(&mut publisher, &mut below, |file, page, content| {
        let is_new = (file, page) == (0, 1);
        let rounds = if is_new { 0..2 } else { 0..1 };
        let mut any = rounds.map(|round| page_of(file, page, round));
        assert!(
            !is_whole || any.any(|known| known == content),
            "page {page} of file {file} is given out as nobody wrote it"
        );
        read += 1;
    });
    let _ = cleaner.checkpoint(&mut below);
    let _ = cleaner.sync(&mut below, &[ObjectId(1), ObjectId(17)]);
    // What came of it is looked at as well.
    if let Ok(mut below) = Logical::open(disks.iter().collect()) {
        let _ = below.check(&mut |_| {});
    }
    read
}

/// Does what a check and a dump do.
fn look(disks: &[CorruptDisk<'_>], memory: usize) {
    for disk in disks {
        let Ok(found) = root::checkpoints(&disk) else { continue };
        drop(found);
        for block in [20, 70, 100, 140] {
            let content = disk.get(block);
            let _ = (intent::decode(&content), resync::decode(&content));
            let _ = belay_logical::mapping::decode(block, &content);
        }
    }
    let Ok(mut lower) = Logical::open(disks.iter().collect()) else { return };
    lower.stores().for_each(|store| store.limit_memory(memory));
    let found = lower.check(&mut |_| {});
    if let Ok(found) = found {
        let wanted = BTreeSet::from([ObjectId(1), ObjectId(20)]);
        belay_posix::check::check(&mut lower, found.objects.iter(), &wanted, &mut |_| {});
    }
    for object in [0, 1, 17, 300, u64::MAX].map(ObjectId) {
        let _ = lower.place_of(object);
    }
    for store in lower.stores() {
        for block in [1, 64, 70, 330, BLOCKS - 1, u64::MAX] {
            let role = store.role_of(block);
            let _ = role.map(|found| (found.twin(block), found.is_current(block)));
            let _ = store.append_at(block);
        }
        for number in [0, 1, 5, 16, u64::MAX] {
            let _ = store.inode_with(number);
            if let Ok(Some(file)) = store.file_with(number) {
                let _ =
                    (store.places(file, 20), store.written(file, 0, 20), store.attributes(file));
            }
        }
        let _ = (store.credit(), store.free_blocks(), store.root_block().is_ok());
    }
}
