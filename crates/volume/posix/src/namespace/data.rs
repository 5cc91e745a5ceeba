//! The data of files.

use super::{MOST_BYTES, Namespace};
use crate::attributes::Kind;
use crate::error::Result;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, PAGE};
use rustix::io::Errno;

const SIZE: u64 = PAGE as u64;
/// Pages that one transaction makes zeros of: a part of those that there can be between two
/// checkpoints.
const MOST_AT_ONCE: u64 = belay_cache::changes::MOST_PUNCHED / 4;

impl<M: Memory, B: Lower> Namespace<'_, '_, M, B> {
    fn file(&mut self, object: ObjectId) -> Result<u64, B::Error> {
        let node = self.node(object)?;
        match node.metadata.kind() {
            Kind::File => Ok(node.size),
            Kind::Directory => Err(Errno::ISDIR.into()),
            Kind::Link | Kind::Special => Err(Errno::INVAL.into()),
        }
    }

    /// Reads from a file: less than asked for only at its end.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`; those of reading.
    pub fn read(
        &mut self,
        object: ObjectId,
        offset: u64,
        most: usize,
    ) -> Result<Vec<u8>, B::Error> {
        let size = self.file(object)?;
        let end = size.min(offset.saturating_add(most as u64));
        let mut out = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let page = self.view.page(object, at / SIZE)?;
            let from = (at % SIZE) as usize;
            let to = PAGE.min(from + (end - at) as usize);
            out.extend_from_slice(page.get(from..to).unwrap_or_default());
            at += (to - from) as u64;
        }
        Ok(out)
    }

    /// Writes to a file, at `offset`, or at its end. Whoever writes to a program must not do so
    /// with its rights: the kernel, which knows who may, takes the bits for that away before.
    ///
    /// # Errors
    /// `EFBIG`, `EISDIR`, `EINVAL`; those of reading.
    pub fn write(
        &mut self,
        object: ObjectId,
        offset: Option<u64>,
        mut data: &[u8],
    ) -> Result<(), B::Error> {
        let size = self.file(object)?;
        let offset = offset.unwrap_or(size);
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MOST_BYTES);
        let end = end.ok_or(Errno::FBIG)?;
        let mut at = offset;
        while !data.is_empty() {
            let from = (at % SIZE) as usize;
            let (here, rest) = data.split_at(data.len().min(PAGE - from));
            // What is behind the end is zeros, and is not read.
            let is_whole = here.len() == PAGE || at - from as u64 >= size;
            let page = match is_whole {
                true => self.view.new_page(object, at / SIZE)?,
                false => self.view.page_mut(object, at / SIZE)?,
            };
            if let Some(room) = page.get_mut(from..from + here.len()) {
                room.copy_from_slice(here);
            }
            at += here.len() as u64;
            data = rest;
        }
        if end > size {
            self.view.set_size(object, end)?;
        }
        let now = self.caller.now;
        let metadata = self.view.change(object)?;
        (metadata.modified, metadata.changed) = (now, now);
        Ok(())
    }

    /// Makes zeros of data, as fallocate(2) with these flags does. Where data are to come no room
    /// is taken, but it must be there. Gives from where on it is to be asked for again, in another
    /// transaction, if it is too much for one.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for other flags than `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE` and
    /// `FALLOC_FL_ZERO_RANGE`; `ENOSPC` for more than is free; those of a write.
    pub fn allocate(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u64,
        flags: u32,
    ) -> Result<Option<u64>, B::Error> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 16;
        let size = self.file(object)?;
        let end = offset.checked_add(length).filter(|end| *end <= MOST_BYTES).ok_or(Errno::FBIG)?;
        let (zeroes, takes) = match flags & !KEEP_SIZE {
            0 => (false, true),
            PUNCH_HOLE if flags & KEEP_SIZE != 0 => (true, false),
            ZERO_RANGE => (true, true),
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        if takes {
            // What is below the length may be there already, all of it or none.
            let new = end.div_ceil(SIZE).saturating_sub((offset / SIZE).max(size.div_ceil(SIZE)));
            let room = self.view.room()?;
            if new > room.for_users().min(room.least) || length / SIZE > room.capacity {
                return Err(Errno::NOSPC.into());
            }
        }
        if zeroes && let Some(more) = self.zero(object, offset, end, size)? {
            return Ok(Some(more));
        }
        if flags & KEEP_SIZE == 0 && end > size {
            self.view.set_size(object, end)?;
        }
        let now = self.caller.now;
        let metadata = self.view.change(object)?;
        (metadata.modified, metadata.changed) = (now, now);
        Ok(None)
    }

    /// Makes zeros of what is from `offset` to `end` in a file of that length; gives where it has
    /// stopped, if that is before the end. Only pages that stay in part are read.
    fn zero(
        &mut self,
        object: ObjectId,
        offset: u64,
        end: u64,
        size: u64,
    ) -> Result<Option<u64>, B::Error> {
        let first = offset.div_ceil(SIZE);
        self.zero_within(object, offset, end.min(size).min(first * SIZE))?;
        if end >= size {
            // It is cut off, and as long as before.
            if first * SIZE < size {
                self.view.set_size(object, first * SIZE)?;
                self.view.set_size(object, size)?;
            }
            return Ok(None);
        }
        let last = end / SIZE;
        let count = last.saturating_sub(first);
        self.view.punch(object, first, count.min(MOST_AT_ONCE))?;
        if count > MOST_AT_ONCE {
            return Ok(Some((first + MOST_AT_ONCE) * SIZE));
        }
        self.zero_within(object, (last * SIZE).max(offset), end)?;
        Ok(None)
    }

    /// Makes zeros within a page. If they are that, nothing is written.
    fn zero_within(&mut self, object: ObjectId, from: u64, to: u64) -> Result<(), B::Error> {
        if from >= to {
            return Ok(());
        }
        let page = from / SIZE;
        let range = (from % SIZE) as usize..(to - page * SIZE) as usize;
        let content = self.view.page(object, page)?.get(range.clone()).unwrap_or_default();
        if content.iter().any(|byte| *byte != 0) {
            self.view.page_mut(object, page)?.get_mut(range).unwrap_or_default().fill(0);
        }
        Ok(())
    }
}
