//! The intent log: what somebody was told is durable, to be done again after a power failure.
//!
//! There are two areas, one for what comes after an even checkpoint, and one for an odd one. A
//! checkpoint has all that was appended before it, so only the area of the last one counts. Each
//! block of an area names the one before it, and the first one the root of its checkpoint, by
//! their checksums: so nothing of an earlier round is taken for it.
//!
//! The last block of an area is its mark, written with the first append after a checkpoint. It
//! names that checkpoint: whoever does not find its root knows that it was there. Without a mark
//! nothing was appended: damage to a log that nobody needs is none.
//!
//! What is appended at once is read as a whole, or not at all, and is made when all before it is
//! durable. So a power failure can cut off the last one, and no other. One that begins behind a
//! block that is not as it should be says that the block was damaged: the log is broken.

use crate::blocks;
use crate::error::{Error, Result};
use crate::layout;
use crate::pointer::Checksum;
use crate::store::Store;
use crate::tail::Tail;
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Blocks of an area of a new store.
const AREA: u64 = 2048;
/// Of a small disk, one block of so many, for both.
const SHARE: u64 = 64;
/// But no less than this, if it is no more than one of so many.
const LEAST: (u64, u64) = (64, 16);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// The checksum of the block before, or of the root.
    before: U64,
    /// Bytes in this block.
    length: U16,
    /// [`BEGINS`].
    flags: U16,
    /// The lower half of the checksum of the root that all of the area comes after.
    root: U32,
    /// Over all of the block, with zeros here.
    checksum: U64,
}

const MAGIC: [u8; 8] = *b"belayINT";
/// An append begins in this block.
const BEGINS: u16 = 1;
/// It is the mark of an area in which something is.
const MARK: u16 = 2;
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
    /// Whether an append begins here.
    pub begins: bool,
    /// The lower half of the checksum of the root of its area.
    pub root: u32,
    /// The bytes in it.
    pub bytes: Vec<u8>,
}

/// Takes a block of the log apart; `None` if it is none.
pub fn decode(block: &Block) -> Option<LogBlock> {
    let head: Head = layout::read(block, 0);
    let length = usize::from(head.length.get()).min(ROOM);
    let checksum = Checksum(head.checksum.get());
    (head.magic == MAGIC).then(|| LogBlock {
        before: Checksum(head.before.get()),
        checksum,
        is_whole: checksum == sum(block) && usize::from(head.length.get()) == length,
        begins: head.flags.get() & BEGINS != 0,
        root: head.root.get(),
        bytes: block.get(HEAD..HEAD + length).unwrap_or_default().to_vec(),
    })
}

/// The checkpoint after which the area with this mark was appended to; `None` if it does not tell.
pub(crate) fn marked(block: &Block) -> Option<u64> {
    let found = decode(block).filter(|mark| mark.is_whole && !mark.begins)?;
    Some(u64::from_le_bytes(found.bytes.try_into().ok()?))
}

/// What is in an area of the log.
struct Area {
    /// What was appended.
    found: Vec<Vec<u8>>,
    /// The blocks with that.
    blocks: Vec<Block>,
    /// Where that ends.
    tail: Tail,
    /// Where it only seems to end, as something that was appended later may be behind that.
    broken: Option<Broken>,
}

/// A block of the log that hides what was appended behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Where it is on the disk.
    pub block: u64,
    /// What is wrong with it.
    pub why: String,
}

impl<D: Disk> Store<D> {
    /// Takes room for the log of a new store.
    pub(crate) fn make_intent_log(&mut self) -> Result<()> {
        let capacity = self.geometry.capacity();
        let least = LEAST.0.min(capacity / LEAST.1).max(4);
        let count = (2 * AREA).min(capacity / SHARE).max(least);
        let (first, count) = self.take_row(count)?;
        let both = count / 2 * 2;
        let root = self.root_mut()?;
        (root.intent_first, root.intent_blocks) = (first.into(), both.into());
        for mark in [first + both / 2 - 1, first + both - 1] {
            blocks::write(&self.disk, mark, &ZEROS)?;
        }
        (first + both..first + count).try_for_each(|block| self.free(block))
    }

    /// The area of what comes after a checkpoint: its first block, and how many precede its mark.
    fn area(&self, checkpoint: u64) -> Result<(u64, u64)> {
        let root = self.root()?;
        let half = root.intent_blocks.get() / 2;
        Ok((root.intent_first.get() + checkpoint % 2 * half, half.saturating_sub(1)))
    }

    /// Whether nothing was appended after the checkpoint with that root: its area has no mark.
    fn is_empty(&self, mark: u64, root: Checksum) -> bool {
        let is_other = |mark: LogBlock| mark.is_whole && mark.before != root;
        blocks::read(&self.disk, mark)
            .is_ok_and(|block| block == ZEROS || decode(&block).is_some_and(is_other))
    }

    /// Nothing was appended yet after the last checkpoint, which was just taken.
    pub(crate) fn begin_area(&mut self) -> Result<()> {
        self.tail = Some(Tail { used: 0, before: self.last_root()? });
        Ok(())
    }

    /// Appends something, and makes it durable. False if there is no room.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn append_intent(&mut self, bytes: &[u8]) -> Result<bool> {
        let has_room = self.begin_append(bytes)?;
        if has_room {
            blocks::flush(&self.disk)?;
            self.end_append();
        }
        Ok(has_room)
    }

    /// The first half of that, for whoever reads while the disk is flushed. If there is room a
    /// flush comes next, and then [`Store::end_append`]. Until then nothing is changed; after an
    /// error of the flush the store must be opened again.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn begin_append(&mut self, bytes: &[u8]) -> Result<bool> {
        let last = self.epoch() - 1;
        let (first, room) = self.area(last)?;
        let is_marked = self.tail.is_some_and(|tail| tail.used > 0);
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
        if tail.used + all.len().div_ceil(ROOM) as u64 > room {
            return Ok(false);
        }
        let root = self.last_root()?;
        if !is_marked {
            let (mark, _) = encode(root, root, MARK, &last.to_le_bytes());
            blocks::write(&self.disk, first + room, &mark)?;
        }
        let (from, mut appended) = (tail.used, Vec::new());
        for (number, part) in all.chunks(ROOM).enumerate() {
            let flags = if number == 0 { BEGINS } else { 0 };
            let (block, checksum) = encode(tail.before, root, flags, part);
            appended.push(block);
            tail = Tail { used: tail.used + 1, before: checksum };
        }
        blocks::write(&self.disk, first + from, appended.as_flattened())?;
        self.appended = Some(tail);
        Ok(true)
    }

    /// The second half: the disk was flushed.
    pub fn end_append(&mut self) {
        self.tail = self.appended.take().or(self.tail);
    }

    /// Writes what an area has once more, and gives where it ends; `None` if not all of it can be
    /// read. Whoever appended it may have been told that a flush had failed, after which the system
    /// reads as written what is not on the disk, and a later flush does not tell.
    fn renew_area(&self, checkpoint: u64) -> Result<Option<Tail>> {
        let (first, _) = self.area(checkpoint)?;
        let Area { tail, broken, blocks, .. } = self.read_area(checkpoint, self.last_root()?)?;
        if broken.is_some() {
            return Ok(None);
        }
        for (block, content) in (first..).zip(&blocks) {
            blocks::write(&self.disk, block, content)?;
        }
        // Each append is made when the one before it is durable: by that a broken one is known.
        blocks::flush(&self.disk)?;
        Ok(Some(tail))
    }

    /// The checksum of the root of the last checkpoint.
    fn last_root(&self) -> Result<Checksum> {
        Ok(Checksum(self.root()?.checksum.get()))
    }

    /// The area that counts.
    fn last_area(&self) -> Result<Area> {
        self.read_area(self.root()?.epoch.get(), self.last_root()?)
    }

    /// What was appended after the last checkpoint.
    ///
    /// # Errors
    /// [`Error::Intents`] if that is not, or may not be, all that was appended.
    pub fn intents(&self) -> Result<Vec<Vec<u8>>> {
        let area = self.last_area()?;
        match area.broken {
            Some(Broken { block, why }) => Err(Error::Intents { block, why }),
            None => Ok(area.found),
        }
    }

    /// The block of the log that hides what was appended behind it, if there is one.
    ///
    /// # Errors
    /// None that a store without mistakes gives.
    pub fn broken_intents(&self) -> Result<Option<Broken>> {
        Ok(self.last_area()?.broken)
    }

    /// Ends the log where it is broken: what was appended behind that is given up. Gives that
    /// place. Only of a store to which nothing was done yet.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn cut_intents(&self) -> Result<Option<Broken>> {
        let broken = self.broken_intents()?;
        let (first, room) = self.area(self.root()?.epoch.get())?;
        if let Some(broken) = &broken {
            for block in broken.block..first + room {
                // A disk gives a sector that it cannot read another place when it is written.
                blocks::write(&self.disk, block, &ZEROS)?;
            }
            blocks::flush(&self.disk)?;
        }
        match self.broken_intents()? {
            None => Ok(broken),
            Some(Broken { block, why }) => Err(Error::Intents { block, why }),
        }
    }

    /// The append that begins in a block of the log, if all of it is there.
    pub fn append_at(&self, block: u64) -> Option<Vec<u8>> {
        let root = self.root().ok()?;
        let end = root.intent_first.get() + root.intent_blocks.get();
        let (mut bytes, mut before): (Vec<u8>, Option<Checksum>) = (Vec::new(), None);
        for at in block..end {
            let one = decode(&blocks::read(&self.disk, at).ok()?)?;
            if !one.is_whole
                || before.is_some_and(|before| before != one.before)
                || one.begins != before.is_none()
            {
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

    /// Whether something was appended behind a block of an area: that block was durable before.
    fn is_behind(&self, block: u64, end: u64, root: Checksum) -> bool {
        let mut later =
            (block + 1..end).filter_map(|at| decode(&blocks::read(&self.disk, at).ok()?));
        later.any(|one| one.is_whole && one.begins && one.root == half_of(root))
    }

    /// What is in the area of a checkpoint whose root has that checksum, and where it ends.
    fn read_area(&self, checkpoint: u64, root: Checksum) -> Result<Area> {
        let (first, room) = self.area(checkpoint)?;
        let mut tail = Tail { used: 0, before: root };
        // An append that was cut off is no part of it: the next one comes in its place.
        let mut end = tail;
        let mut bytes = Vec::new();
        let (mut found, mut all) = (Vec::new(), Vec::new());
        let mut broken = None;
        while tail.used < room {
            let at = first + tail.used;
            let block = match blocks::read(&self.disk, at) {
                Ok(block) => block,
                Err(_) if tail.used == 0 && self.is_empty(first + room, root) => break,
                Err(why) => {
                    broken = Some(Broken { block: at, why: why.to_string() });
                    break;
                }
            };
            let head: Head = layout::read(&block, 0);
            let (checksum, length) = (sum(&block), usize::from(head.length.get()));
            let is_next = head.magic == MAGIC
                && head.root.get() == half_of(root)
                && head.before.get() == tail.before.0
                && head.checksum.get() == checksum.0
                && (1..=ROOM).contains(&length);
            if !is_next {
                if self.is_behind(at, first + room, root) {
                    let why =
                        "it is not what was written, and what was appended later is behind it"
                            .into();
                    broken = Some(Broken { block: at, why });
                }
                break;
            }
            bytes.extend_from_slice(block.get(HEAD..HEAD + length).unwrap_or_default());
            all.push(block);
            tail = Tail { used: tail.used + 1, before: checksum };
            if let Some(whole) = whole(&bytes) {
                found.push(whole);
                bytes.clear();
                end = tail;
            }
        }
        all.truncate(end.used as usize);
        Ok(Area { found, blocks: all, tail: end, broken })
    }
}

/// A block of the log, and its checksum.
fn encode(before: Checksum, root: Checksum, flags: u16, bytes: &[u8]) -> (Block, Checksum) {
    let mut block = ZEROS;
    let head = Head {
        magic: MAGIC,
        before: before.0.into(),
        length: (bytes.len() as u16).into(),
        flags: flags.into(),
        root: half_of(root).into(),
        checksum: U64::ZERO,
    };
    if let Some(room) = block.get_mut(HEAD..HEAD + bytes.len()) {
        room.copy_from_slice(bytes);
    }
    layout::write(&mut block, 0, &head);
    let checksum = sum(&block);
    layout::write(&mut block, CHECKSUM, &U64::from(checksum.0));
    (block, checksum)
}

/// What a block has of the checksum of the root of its area.
fn half_of(root: Checksum) -> u32 {
    root.0 as u32
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
