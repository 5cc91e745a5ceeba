//! The write set: where an image differs from what the transaction under way sees.
//!
//! An index over the image writes in a log, kept in the daemon's own memory: a successor does not
//! need it, it carries out the log's writes in their order.

use belay_memory::Memory;

/// Bytes of the image that were written, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// First byte in the image.
    start: u64,
    /// First byte behind it.
    end: u64,
    /// Byte offset in the memory.
    from: usize,
}

/// What a transaction has written. Extents are in order and do not overlap: of bytes that were
/// written twice, only the last stay.
#[derive(Debug, Default)]
pub struct WriteSet {
    extents: Vec<Extent>,
    /// The image is to be made durable once it is written.
    pub sync: bool,
    /// Room for the pieces of a run, kept so that no commit has to ask for memory.
    pub(crate) pieces: Vec<(usize, usize)>,
}

/// Pieces of a run, at most: as many as one pwritev(2) is given.
const PIECES: usize = 64;

impl WriteSet {
    /// Whether nothing was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty() && !self.sync
    }

    /// Forgets all. The room is kept for the next transaction.
    pub fn clear(&mut self) {
        self.extents.clear();
        self.sync = false;
    }

    /// Notes that `len` bytes at `offset` of the image are in memory from byte `from` on.
    pub fn write(&mut self, offset: u64, len: usize, from: usize) {
        let new = Extent { start: offset, end: offset.saturating_add(len as u64), from };
        if new.start >= new.end {
            return;
        }
        if self.extents.last().is_none_or(|last| last.end <= new.start) {
            self.extents.push(new);
            return;
        }
        let first = self.extents.partition_point(|extent| extent.end <= new.start);
        let behind = self.extents.partition_point(|extent| extent.start < new.end);
        let before = self.extents.get(first).filter(|old| old.start < new.start);
        let left = before.map(|old| Extent { end: new.start, ..*old });
        let after = behind.checked_sub(1).and_then(|at| self.extents.get(at));
        let right = after.filter(|old| old.end > new.end).map(|old| Extent {
            start: new.end,
            end: old.end,
            from: old.from + (new.end - old.start) as usize,
        });
        let with = left.into_iter().chain([new]).chain(right);
        self.extents.splice(first..behind.max(first), with);
    }

    /// Puts what was written over `out`, which has been read from `offset` of the image.
    pub fn patch<M: Memory>(&self, memory: &M, offset: u64, out: &mut [u8]) {
        let end = offset.saturating_add(out.len() as u64);
        let first = self.extents.partition_point(|extent| extent.end <= offset);
        for extent in self.extents.iter().skip(first).take_while(|extent| extent.start < end) {
            let start = extent.start.max(offset);
            let stop = extent.end.min(end);
            let from = extent.from + (start - extent.start) as usize;
            let (to, until) = ((start - offset) as usize, (stop - offset) as usize);
            if let Some(out) = out.get_mut(to..until) {
                memory.load_unaligned(from, out);
            }
        }
    }

    /// How far a read from `offset` reaches into what was written, without a gap, if it begins in
    /// it.
    pub fn reach(&self, offset: u64) -> u64 {
        let first = self.extents.partition_point(|extent| extent.end <= offset);
        let mut end = offset;
        for extent in self.extents.iter().skip(first) {
            if extent.start > end {
                break;
            }
            end = extent.end;
        }
        end
    }

    /// First byte behind everything that was written.
    pub fn end(&self) -> u64 {
        self.extents.last().map_or(0, |extent| extent.end)
    }

    /// The run of the image, and the pieces of memory that belong there (byte offset in the memory,
    /// and length), that start with extent number `at`, which is moved behind it. Gives where the
    /// run starts in the image; `None` at the end. At most 64 pieces, as many as one pwritev(2) is
    /// given.
    pub fn run(&self, at: &mut usize, pieces: &mut Vec<(usize, usize)>) -> Option<u64> {
        pieces.clear();
        let start = self.extents.get(*at)?.start;
        let mut end = start;
        while let Some(extent) = self.extents.get(*at)
            && extent.start == end
            && pieces.len() < PIECES
        {
            pieces.push((extent.from, (extent.end - extent.start) as usize));
            end = extent.end;
            *at += 1;
        }
        Some(start)
    }
}
