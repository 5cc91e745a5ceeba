//! How data are written in place, and which of them a power failure has met (Loris V).
//!
//! A block that belongs to the last checkpoint is overwritten only when the resynchronization log
//! has its new checksum. Overwrites are kept in memory for a while, so that many records share a
//! log block and a flush. When the store is opened, a block that has one of the checksums that the
//! log has for it is as good as one that has the checkpoint's; one that has neither was torn.
//!
//! What cannot be read of this when the store is opened may be read later. Until then the store
//! changes nothing: with the next checkpoint the log is void. It looks again when it is opened
//! again.
//!
//! If the log has no room, the block goes to another place.

use crate::blocks;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::geometry::DataMode;
use crate::layout::{self, Kind};
use crate::overwrites::Overwrite;
use crate::pointer::Checksum;
use crate::store::Store;
use crate::tree::Position;
use belay_disk::{BLOCK, Block, Disk, ZEROS};
use std::collections::BTreeMap;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Blocks of the log of a new store.
const LOG: u64 = 256;
/// Of a small disk, no more than one block of so many.
const SHARE: u64 = 64;
/// Overwrites that are kept in memory: 16 MiB. The flush of their records waits for what was
/// overwritten before.
const MOST: usize = 4096;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    /// Which epoch was under way.
    epoch: U64,
    /// Which block of the log this is.
    number: U32,
    /// How many records it has.
    count: U32,
    /// Over all that is behind it, and what is before it.
    checksum: U64,
}

/// What is written where.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Record {
    file: U64,
    number: U64,
    checksum: U64,
}

const MAGIC: [u8; 8] = *b"belayRSY";
const HEAD: usize = size_of::<Head>();
const RECORDS: usize = (BLOCK - HEAD) / size_of::<Record>();

/// Where in a block its checksum is.
const CHECKSUM: usize = std::mem::offset_of!(Head, checksum);

fn sum(block: &Block) -> Checksum {
    layout::own_checksum(block, CHECKSUM, 0)
}

/// A block of the log, as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// Which epoch was under way.
    pub epoch: u64,
    /// Which block of the log it is.
    pub number: u64,
    /// Whether it matches its own checksum.
    pub is_whole: bool,
    /// Its records: a file, which block of it, and the checksum of that.
    pub records: Vec<(FileId, u64, Checksum)>,
}

/// Takes a block of the log apart; `None` if it is none.
pub fn decode(block: &Block) -> Option<LogBlock> {
    let head: Head = layout::read(block, 0);
    let count = (head.count.get() as usize).min(RECORDS);
    let record = |number: usize| {
        let record: Record = layout::read(block, HEAD + number * size_of::<Record>());
        let file = FileId::from_number(record.file.get());
        (file, record.number.get(), Checksum(record.checksum.get()))
    };
    (head.magic == MAGIC).then(|| LogBlock {
        epoch: head.epoch.get(),
        number: head.number.get().into(),
        is_whole: head.checksum.get() == sum(block).0,
        records: (0..count).map(record).collect(),
    })
}

impl<D: Disk> Store<D> {
    /// Takes room for the log of a new store whose data are written in place.
    pub(crate) fn make_log(&mut self) -> Result<()> {
        if self.geometry.parameters.data == DataMode::OutOfPlace {
            return Ok(());
        }
        let count = LOG.min(self.geometry.capacity() / SHARE).max(1);
        let (first, count) = self.take_row(count)?;
        let root = self.root_mut()?;
        (root.log_first, root.log_blocks) = (first.into(), count.into());
        Ok(())
    }

    /// Whether a block of the last checkpoint may be overwritten: if the log has room for that.
    pub(crate) fn may_overwrite(&self, block: u64) -> Result<bool> {
        if self.geometry.parameters.data == DataMode::OutOfPlace {
            return Ok(false);
        }
        let more = usize::from(!self.resync.overwrites.contains_key(&block));
        let needed = (self.resync.overwrites.len() + more).div_ceil(RECORDS) as u64;
        Ok(self.resync.used + needed <= self.root()?.log_blocks.get())
    }

    /// Overwrites blocks, if many are to be.
    pub(crate) fn overwrite_if_many(&mut self) -> Result<()> {
        if self.resync.overwrites.len() < MOST { Ok(()) } else { self.overwrite() }
    }

    /// Overwrites what is to be: first their checksums go to the log.
    pub(crate) fn overwrite(&mut self) -> Result<()> {
        let pending: Vec<(u64, Overwrite)> =
            std::mem::take(&mut self.resync.overwrites).into_iter().collect();
        if pending.is_empty() {
            return Ok(());
        }
        let first = self.root()?.log_first.get();
        let mut log: Vec<Block> = Vec::new();
        for (number, records) in (self.resync.used..).zip(pending.chunks(RECORDS)) {
            let mut block = ZEROS;
            for (number, (_, overwrite)) in records.iter().enumerate() {
                let record = Record {
                    file: overwrite.file.number().into(),
                    number: overwrite.number.into(),
                    checksum: overwrite.checksum.0.into(),
                };
                layout::write(&mut block, HEAD + number * size_of::<Record>(), &record);
            }
            let head = Head {
                magic: MAGIC,
                epoch: self.nodes.epoch().into(),
                number: (number as u32).into(),
                count: (records.len() as u32).into(),
                checksum: U64::ZERO,
            };
            layout::write(&mut block, 0, &head);
            let checksum = U64::from(sum(&block).0);
            layout::write(&mut block, CHECKSUM, &checksum);
            log.push(block);
        }
        blocks::write(&self.disk, first + self.resync.used, log.as_flattened())?;
        self.resync.used += log.len() as u64;
        blocks::flush(&self.disk)?;
        let contents = pending.iter().map(|(block, one)| Ok((*block, &*one.content)));
        blocks::write_in_order(&self.disk, contents)
    }

    /// Takes in what was overwritten after the checkpoint that the store is opened at.
    pub(crate) fn resynchronize(&mut self) -> Result<()> {
        let mut known: BTreeMap<(FileId, u64), Vec<Checksum>> = BTreeMap::new();
        let blocks = self.log_blocks()?;
        self.renew_log(&blocks)?;
        for (_, block) in blocks {
            let head: Head = layout::read(&block, 0);
            for number in 0..head.count.get() as usize {
                let record: Record = layout::read(&block, HEAD + number * size_of::<Record>());
                let at = (FileId::from_number(record.file.get()), record.number.get());
                known.entry(at).or_default().push(Checksum(record.checksum.get()));
            }
        }
        let mut newer = Vec::new();
        for ((file, number), checksums) in known {
            match self.overwritten_block(file, number) {
                Ok(Some((position, content))) => {
                    self.resync.found.push((file, number));
                    if self.take_in(position, &content, &checksums)?
                        && let Some(content) = self.without_tail(file, number, content)?
                    {
                        newer.push((file, number, content));
                    }
                }
                Err(why) if why.may_pass() => self.not_yet(&why),
                // It is nobody's any more, or cannot be had whatever the log says.
                Ok(None) | Err(_) => {}
            }
        }
        if self.unresolved().is_none() {
            for (file, number, content) in newer {
                match self.write(file, number, &content) {
                    // The rest of the volume can be had all the same.
                    Err(Error::NoSpace | Error::Damaged { .. }) => {}
                    written => written?,
                }
            }
        }
        Ok(())
    }

    /// What a block is to be that was overwritten and has something behind the end of its file:
    /// that was longer when its last block was written, and is as long as before again. If it
    /// becomes longer once more, there must be zeros. `None` if nothing is there.
    fn without_tail(
        &mut self,
        file: FileId,
        number: u64,
        mut content: Block,
    ) -> Result<Option<Block>> {
        let size = self.inode(file)?.1.size.get();
        let within = size.saturating_sub(number.saturating_mul(BLOCK as u64)).min(BLOCK as u64);
        let behind = content.get_mut(within as usize..).unwrap_or_default();
        if behind.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        behind.fill(0);
        Ok(Some(content))
    }

    /// What a block is to be that is to be overwritten, and is not yet.
    pub fn pending(&self, block: u64) -> Option<&Block> {
        self.resync.pending(block)
    }

    /// It cannot be told yet what was overwritten.
    fn not_yet(&mut self, why: &Error) {
        self.resync.unresolved.get_or_insert_with(|| why.to_string());
    }

    /// Says whether all is known of what was overwritten before the store was opened.
    ///
    /// # Errors
    /// [`Error::Unresolved`] if not.
    pub fn resolved(&self) -> Result<()> {
        match self.unresolved() {
            Some(why) => Err(Error::Unresolved(why.to_owned())),
            None => Ok(()),
        }
    }

    /// Writes the blocks of the log once more. Whoever wrote them may have been told that a flush
    /// had failed, after which the system reads as written what is not on the disk, and a later
    /// flush does not tell. What is overwritten from now on counts on those before.
    fn renew_log(&mut self, blocks: &[(u64, Block)]) -> Result<()> {
        let Some((last, _)) = blocks.last() else { return Ok(()) };
        self.resync.used = last + 1;
        let first = self.root()?.log_first.get();
        blocks
            .iter()
            .try_for_each(|(number, block)| blocks::write(&self.disk, first + number, block))?;
        blocks::flush(&self.disk)
    }

    /// The blocks of the log that belong to the epoch that is under way, each with its number. One
    /// that cannot be read is passed by: it was torn by a power failure, and is the last one, or is
    /// damaged, and those behind it are as good as before.
    fn log_blocks(&mut self) -> Result<Vec<(u64, Block)>> {
        let root = *self.root()?;
        let mut found = Vec::new();
        for number in 0..root.log_blocks.get() {
            let at = root.log_first.get() + number;
            let block = match blocks::read(&self.disk, at) {
                Ok(block) => block,
                Err(why) => {
                    if why.may_pass() {
                        self.not_yet(&why);
                    }
                    continue;
                }
            };
            let head: Head = layout::read(&block, 0);
            let is_next = head.magic == MAGIC
                && head.epoch.get() == self.nodes.epoch()
                && u64::from(head.number.get()) == number
                && head.count.get() as usize <= RECORDS
                && head.checksum.get() == sum(&block).0;
            if !is_next {
                break;
            }
            found.push((number, block));
        }
        Ok(found)
    }

    /// Where the pointer to a block is that was overwritten, if it is still the file's, and what
    /// the block holds.
    fn overwritten_block(
        &mut self,
        file: FileId,
        number: u64,
    ) -> Result<Option<(Position, Block)>> {
        let (at, inode) = self.inode(file)?;
        let tree = crate::files::tree_of(at, &inode);
        if tree.leaves == Kind::Data {
            return Ok(None);
        }
        let Some((key, slot)) = self.place_of(tree, number)? else { return Ok(None) };
        let pointer = self.nodes.pointer(key, slot)?;
        if pointer.is_null() || pointer.is_lost() {
            return Ok(None);
        }
        let content = blocks::read(&self.disk, pointer.block())?;
        Ok(Some(((key, slot), content)))
    }

    /// Takes in a block that was overwritten, with the checksums that it may have. Gives whether it
    /// has been.
    fn take_in(
        &mut self,
        (key, slot): Position,
        content: &Block,
        checksums: &[Checksum],
    ) -> Result<bool> {
        let pointer = self.nodes.pointer(key, slot)?;
        let is = Checksum::of(self.seed, content);
        let is_newer = is != pointer.checksum() && checksums.contains(&is);
        if is_newer {
            self.nodes.set(key, slot, pointer.stable().with_checksum(is))?;
        }
        Ok(is_newer)
    }

    /// What could not be read when the store was opened, and why, if that hides which blocks were
    /// overwritten before. Nothing can be changed then ([`Error::Unresolved`]).
    pub fn unresolved(&self) -> Option<&str> {
        self.resync.unresolved.as_deref()
    }

    /// The blocks of files that were overwritten after the checkpoint that the store was opened at.
    /// Other copies of them may differ.
    pub fn overwritten(&self) -> &[(FileId, u64)] {
        &self.resync.found
    }
}

const _: () = assert!(HEAD == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_log_block_checks_itself() {
        let mut block = ZEROS;
        let mut head = Head::new_zeroed();
        head.count = 3.into();
        layout::write(&mut block, 0, &head);
        let before = sum(&block);
        head.checksum = before.0.into();
        layout::write(&mut block, 0, &head);
        assert_eq!(sum(&block), before);
        block[100] ^= 1;
        assert_ne!(sum(&block), before);
    }
}
