//! What the committer gets to see: the sealed side, checked, in the order of the image.

use super::area::Overlay;
use super::capacity::{PAGE, SECTOR, bits};
use super::epochs::Side;
use super::index::IndexEntry;
use super::layers;
use super::refused::Corrupt;
use belay_memory::Memory;

/// Bytes of the image that lie in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the image.
    pub offset: u64,
    /// Where it lies, in bytes of the memory.
    pub from: usize,
    /// Bytes.
    pub len: usize,
}

/// A sealed epoch, which is to be brought to the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its number.
    pub epoch: u64,
    /// The image's length when the epoch began.
    pub start: u64,
    /// The image is to be cut here before anything is written, if it is longer.
    pub cut: u64,
    /// The image's length at the end.
    pub length: u64,
    /// What is to be written, by place. Runs do not overlap.
    pub runs: Vec<Run>,
}

impl Sealed {
    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.len as u64).sum()
    }

    /// Whether the epoch has changed nothing.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.cut == self.length && self.start == self.length
    }
}

impl<M: Memory> Overlay<'_, M> {
    /// The sealed epoch, if it is not committed. Any process may ask; nothing of it changes before
    /// [`Overlay::set_committed`].
    ///
    /// # Errors
    /// If the memory is corrupt: what it holds must not get to the image.
    pub fn sealed(&self) -> Result<Option<Sealed>, Corrupt> {
        let state = self.state()?;
        let Some(side) = state.sealed else { return Ok(None) };
        let pages = self.checked(&side)?;
        let mut runs: Vec<Run> = Vec::new();
        for (page, mask, data) in pages {
            for (from, to) in layers::runs(mask) {
                let offset = page * PAGE as u64 + from;
                let len = (to - from).min(side.length.saturating_sub(offset)) as usize;
                let from = data * 8 + from as usize;
                match runs.last_mut() {
                    Some(last)
                        if last.offset + last.len as u64 == offset
                            && last.from + last.len == from =>
                    {
                        last.len += len;
                    }
                    _ => runs.push(Run { offset, from, len }),
                }
            }
        }
        let Side { start, cut, length, .. } = side;
        Ok(Some(Sealed { epoch: state.epoch - 1, start, cut, length, runs }))
    }

    /// The pages of a side by place: page of the image, sectors, first word of the data. Each entry
    /// must be found where it is looked for, have a page of the pool to itself, and lie before the
    /// length; and there must be as many as pages are in use.
    fn checked(&self, side: &Side) -> Result<Vec<(u64, u8, usize)>, Corrupt> {
        if !self.is_whole(side)
            || side.used > self.capacity.bounded()
            || side.cut > side.length.min(side.start)
        {
            return Err(Corrupt);
        }
        let mut taken = vec![false; side.used];
        let mut pages = Vec::with_capacity(side.used);
        for number in 0..side.entries {
            let Some((page, held)) = self.entry(side, number) else { continue };
            let taken = taken.get_mut(held.slot).ok_or(Corrupt)?;
            let IndexEntry::Held(found) = self.find(side, page) else { return Err(Corrupt) };
            let start = page.checked_mul(PAGE as u64).ok_or(Corrupt)?;
            let before = side.length.saturating_sub(start).min(PAGE as u64) as usize;
            if *taken
                || !self.may_hold(side, page)
                || found.slot != held.slot
                || held.mask & !bits(0, before.div_ceil(SECTOR)) != 0
            {
                return Err(Corrupt);
            }
            *taken = true;
            pages.push((page, held.mask, self.data(side, &held)));
        }
        if pages.len() != side.used {
            return Err(Corrupt);
        }
        pages.sort_unstable();
        Ok(pages)
    }
}
