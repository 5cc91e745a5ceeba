//! The data of files.

use super::{MOST_BYTES, Namespace};
use crate::attributes::Kind;
use crate::error::Result;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, PAGE};
use rustix::io::Errno;

const SIZE: u64 = PAGE as u64;
/// The most that is made zeros of at once, in bytes.
const MOST_ZEROED: u64 = 128 << 20;

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

    /// Writes to a file, at `offset`, or at its end. Whoever writes to a program must not do so with its rights: the kernel, which knows
    /// who may, takes the bits for that away before.
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

    /// Makes room for data, or zeros of them, as fallocate(2) with these flags does.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for other flags than `FALLOC_FL_KEEP_SIZE`, `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_ZERO_RANGE`; those of a write.
    pub fn allocate(
        &mut self,
        object: ObjectId,
        offset: u64,
        length: u64,
        flags: u32,
    ) -> Result<(), B::Error> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 16;
        let size = self.file(object)?;
        let end = offset.checked_add(length).filter(|end| *end <= MOST_BYTES).ok_or(Errno::FBIG)?;
        let zeroes = match flags & !KEEP_SIZE {
            0 => false,
            PUNCH_HOLE if flags & KEEP_SIZE != 0 => true,
            ZERO_RANGE => true,
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        if zeroes {
            if end.min(size).saturating_sub(offset) > MOST_ZEROED {
                // Nor would so many pages find room in a cache.
                return Err(Errno::NOSPC.into());
            }
            let mut at = offset;
            while at < end.min(size) {
                let from = (at % SIZE) as usize;
                let to = PAGE.min(from + (end.min(size) - at) as usize);
                let page = self.view.page_mut(object, at / SIZE)?;
                page.get_mut(from..to).unwrap_or_default().fill(0);
                at += (to - from) as u64;
            }
        }
        if flags & KEEP_SIZE == 0 && end > size {
            self.view.set_size(object, end)?;
        }
        let now = self.caller.now;
        let metadata = self.view.change(object)?;
        (metadata.modified, metadata.changed) = (now, now);
        Ok(())
    }
}
