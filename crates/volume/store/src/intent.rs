//! The intent log: what is to be done again when a store is opened after a power failure, because somebody was told that it is durable.
//!
//! There are two areas, one for what comes after an even checkpoint, and one for an odd one. What was promised while a checkpoint was
//! being taken, and is not in it, is in the area of the one before; so both are looked at. A block of an area names the one before it, the first
//! one the root of its checkpoint, by their checksums: so nothing of an earlier round is taken for it.
//!
//! What is appended at once is read as a whole, or not at all.

use crate::blocks;
use crate::error::Result;
use crate::layout;
use crate::pointer::Checksum;
use crate::store::Store;
use crate::tail::Tail;
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Blocks of an area of a new store.
const AREA: u64 = 2048;
/// Of a small disk, no more than one block of so many, for both.
const SHARE: u64 = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// The checksum of the block before, or of the root.
    before: U64,
    /// Bytes in this block.
    length: U32,
    reserved: U32,
    /// Over all of the block, with zeros here.
    checksum: U64,
}

const MAGIC: [u8; 8] = *b"belayINT";
const HEAD: usize = size_of::<Head>();
const ROOM: usize = BLOCK - HEAD;
/// What is before each append: its length, and its checksum.
const PREFIX: usize = 16;

/// Where in a block its checksum is.
const CHECKSUM: usize = std::mem::offset_of!(Head, checksum);

fn sum(block: &Block) -> Checksum {
    layout::own_checksum(block, CHECKSUM, 1)
}

/// A block of the log, as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// The checksum of the block before it, or of the root.
    pub before: Checksum,
    /// Its own.
    pub checksum: Checksum,
    /// Whether it matches that.
    pub is_whole: bool,
    /// The bytes in it.
    pub bytes: Vec<u8>,
}

/// Takes a block of the log apart; `None` if it is none.
pub fn decode(block: &Block) -> Option<LogBlock> {
    let head: Head = layout::read(block, 0);
    let length = (head.length.get() as usize).min(ROOM);
    let checksum = Checksum(head.checksum.get());
    (head.magic == MAGIC).then(|| LogBlock {
        before: Checksum(head.before.get()),
        checksum,
        is_whole: checksum == sum(block) && head.length.get() as usize == length,
        bytes: block.get(HEAD..HEAD + length).unwrap_or_default().to_vec(),
    })
}

/// What is in an area of the log.
struct Area {
    /// What was appended.
    found: Vec<Vec<u8>>,
    /// Where that ends.
    tail: Tail,
    /// Whether it was read up to where it ends, and does not only seem to end where a block cannot be read.
    is_readable: bool,
}

impl<D: Disk> Store<D> {
    /// Takes room for the log of a new store.
    pub(crate) fn make_intent_log(&mut self) -> Result<()> {
        let count = (2 * AREA).min(self.geometry.capacity() / SHARE).max(2);
        let (first, count) = self.take(count)?;
        let both = count / 2 * 2;
        let root = self.root_mut()?;
        (root.intent_first, root.intent_blocks) = (first.into(), both.into());
        (first + both..first + count).try_for_each(|block| self.free(block))
    }

    /// The area of what comes after a checkpoint: its first block, and how many it has.
    fn area(&self, checkpoint: u64) -> Result<(u64, u64)> {
        let root = self.root()?;
        let half = root.intent_blocks.get() / 2;
        Ok((root.intent_first.get() + checkpoint % 2 * half, half))
    }

    /// Appends something, and makes it durable. False if there is no room.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn append_intent(&mut self, bytes: &[u8]) -> Result<bool> {
        let last = self.epoch() - 1;
        let (first, half) = self.area(last)?;
        let mut tail = match self.tail {
            Some(tail) => tail,
            None => match self.renew_area(last)? {
                Some(tail) => tail,
                // What it has must not be written over: a checkpoint does instead.
                None => return Ok(false),
            },
        };
        let mut all = (bytes.len() as u64).to_le_bytes().to_vec();
        all.extend_from_slice(&Checksum::of(2, bytes).0.to_le_bytes());
        all.extend_from_slice(bytes);
        if tail.used + all.len().div_ceil(ROOM) as u64 > half {
            return Ok(false);
        }
        for part in all.chunks(ROOM) {
            let mut block = ZEROS;
            let head = Head {
                magic: MAGIC,
                before: tail.before.0.into(),
                length: (part.len() as u32).into(),
                reserved: U32::ZERO,
                checksum: U64::ZERO,
            };
            if let Some(room) = block.get_mut(HEAD..HEAD + part.len()) {
                room.copy_from_slice(part);
            }
            layout::write(&mut block, 0, &head);
            let checksum = sum(&block);
            layout::write(&mut block, CHECKSUM, &U64::from(checksum.0));
            blocks::write(&self.disk, first + tail.used, &block)?;
            tail = Tail { used: tail.used + 1, before: checksum };
        }
        blocks::flush(&self.disk)?;
        self.tail = Some(tail);
        Ok(true)
    }

    /// Writes what an area has once more, and gives where it ends; `None` if not all of it can be read. Whoever appended it may have been
    /// told that a flush had failed, after which the system reads as written what is not on the disk, and a later flush does not tell.
    fn renew_area(&self, checkpoint: u64) -> Result<Option<Tail>> {
        let (first, _) = self.area(checkpoint)?;
        let Area { tail, is_readable, .. } = self.read_area(checkpoint, self.last_root()?)?;
        if !is_readable {
            return Ok(None);
        }
        for block in first..first + tail.used {
            let content = blocks::read(&self.disk, block)?;
            blocks::write(&self.disk, block, &content)?;
        }
        Ok(Some(tail))
    }

    /// The checksum of the root of the last checkpoint.
    fn last_root(&self) -> Result<Checksum> {
        Ok(Checksum(self.root()?.checksum.get()))
    }

    /// What was appended after the checkpoint before the last one, and then what was after the last one. Only of a store to which nothing
    /// was done yet.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn intents(&self) -> Result<Vec<Vec<u8>>> {
        let root = self.root()?;
        let (last, before) = (root.epoch.get(), root.previous.get());
        let mut found = Vec::new();
        if before > 0 {
            found = self.read_area(before, Checksum(root.previous_checksum.get()))?.found;
        }
        found.extend(self.read_area(last, self.last_root()?)?.found);
        Ok(found)
    }

    /// The append that begins in a block of the log, if all of it is there.
    pub fn append_at(&self, block: u64) -> Option<Vec<u8>> {
        let root = self.root().ok()?;
        let end = root.intent_first.get() + root.intent_blocks.get();
        let (mut bytes, mut before): (Vec<u8>, Option<Checksum>) = (Vec::new(), None);
        for at in block..end {
            let one = decode(&blocks::read(&self.disk, at).ok()?)?;
            if !one.is_whole || before.is_some_and(|before| before != one.before) {
                return None;
            }
            before = Some(one.checksum);
            bytes.extend_from_slice(&one.bytes);
            if let Some(whole) = whole(&bytes) {
                return Some(whole);
            }
        }
        None
    }

    /// Whether something that was appended, and made durable, can no longer be read: a block of the log is damaged, and one behind it
    /// was written later. Gives that block.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn broken_intent(&self) -> Result<Option<u64>> {
        let last = self.epoch() - 1;
        let (first, half) = self.area(last)?;
        let tail = self.read_area(last, self.last_root()?)?.tail;
        let at = first + tail.used;
        // An append is made when the one before it is durable. It names that by its checksum, in what is left of it.
        let mut before = match blocks::read(&self.disk, at).ok().and_then(|block| decode(&block)) {
            Some(one) if one.before == tail.before => one.checksum,
            _ => return Ok(None),
        };
        for next in at + 1..first + half {
            let one = blocks::read(&self.disk, next).ok().and_then(|block| decode(&block));
            let Some(one) = one.filter(|one| one.is_whole && one.before == before) else { break };
            if self.append_at(next).is_some() {
                return Ok(Some(at));
            }
            before = one.checksum;
        }
        Ok(None)
    }

    /// What is in the area of a checkpoint whose root has that checksum, and where it ends.
    fn read_area(&self, checkpoint: u64, root: Checksum) -> Result<Area> {
        let (first, half) = self.area(checkpoint)?;
        let mut tail = Tail { used: 0, before: root };
        // An append that was cut off is no part of it: the next one comes in its place.
        let mut end = tail;
        let mut bytes = Vec::new();
        let mut found = Vec::new();
        let mut is_readable = true;
        while tail.used < half {
            let Ok(block) = blocks::read(&self.disk, first + tail.used) else {
                is_readable = false;
                break;
            };
            let head: Head = layout::read(&block, 0);
            let (checksum, length) = (sum(&block), head.length.get() as usize);
            let is_next = head.magic == MAGIC
                && head.before.get() == tail.before.0
                && head.checksum.get() == checksum.0
                && (1..=ROOM).contains(&length);
            if !is_next {
                break;
            }
            bytes.extend_from_slice(block.get(HEAD..HEAD + length).unwrap_or_default());
            tail = Tail { used: tail.used + 1, before: checksum };
            if let Some(whole) = whole(&bytes) {
                found.push(whole);
                bytes.clear();
                end = tail;
            }
        }
        Ok(Area { found, tail: end, is_readable })
    }
}

/// What was appended, if all of it is there.
fn whole(bytes: &[u8]) -> Option<Vec<u8>> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    let checksum = u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?);
    let content = bytes.get(PREFIX..)?;
    let is_whole = content.len() as u64 == length && Checksum::of(2, content).0 == checksum;
    is_whole.then(|| content.to_vec())
}

const _: () = assert!(HEAD == 32);
