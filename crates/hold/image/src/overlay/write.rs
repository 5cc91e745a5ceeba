//! Writing: into the current side, in whole sectors.

use super::area::Overlay;
use super::capacity::{FURTHEST, PAGE, SECTOR, bits};
use super::epochs::Side;
use super::index::IndexEntry;
use super::refused::Refused;
use belay_memory::Memory;

const SECTOR_BYTES: u64 = SECTOR as u64;
const PAGE_BYTES: u64 = PAGE as u64;

/// A sector of which a write has only a part, as it is to be afterwards.
struct Edge {
    /// Where it starts in the image.
    at: u64,
    data: [u8; SECTOR],
}

impl<M: Memory> Overlay<'_, M> {
    /// Writes `bytes` at `offset` of the image as the daemon sees it: all of it, or nothing.
    /// Sectors that are written in part are filled up with what is there now; where that is on the
    /// disk, `image` reads it, as pread(2) does: it gives how much there was. Gives the length of
    /// `bytes`.
    ///
    /// What lies behind the image's length makes it longer; on a device the caller has refused that
    /// before.
    ///
    /// # Errors
    /// See [`Refused`]. Nothing was written.
    pub fn write<E>(
        &self,
        offset: u64,
        bytes: &[u8],
        mut image: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, Refused<E>> {
        let state = self.state()?;
        let mut side = state.current;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FURTHEST);
        let end = end.ok_or(Refused::TooFar)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        if side.stamp == 0 {
            return Err(Refused::Corrupt); // no life has begun, which makes an empty side
        }
        if !self.has_room(&side, offset, end) {
            return Err(Refused::Full);
        }
        // The edges come first: these may fail.
        let (head_at, tail_at) =
            (offset - offset % SECTOR_BYTES, end - 1 - (end - 1) % SECTOR_BYTES);
        let mut edge = |at: u64| {
            let mut data = [0; SECTOR];
            self.see(&state, at, &mut data, &mut image).map_err(Refused::Image)?;
            let (from, to) = (offset.max(at), end.min(at + SECTOR_BYTES));
            let new = bytes.get((from - offset) as usize..(to - offset) as usize);
            let place = data.get_mut((from - at) as usize..(to - at) as usize);
            if let (Some(place), Some(new)) = (place, new) {
                place.copy_from_slice(new);
            }
            Ok::<_, Refused<E>>(Edge { at, data })
        };
        let whole = |at: u64| offset <= at && at + SECTOR_BYTES <= end;
        let head = if whole(head_at) { None } else { Some(edge(head_at)?) };
        let tail = if whole(tail_at) || tail_at == head_at { None } else { Some(edge(tail_at)?) };
        let mut at = offset;
        while at < end {
            if self.is_crowded(&side) {
                self.grow(&mut side);
            }
            let start = at - at % PAGE_BYTES;
            let stop = end.min(start + PAGE_BYTES);
            let page = start / PAGE_BYTES;
            let held = match self.find(&side, page) {
                IndexEntry::Held(held) => held,
                IndexEntry::Free(free) if side.used < self.most => {
                    self.insert(&mut side, free, page)
                }
                _ => return Err(Refused::Corrupt), // there was room for it just now
            };
            let data = self.data(&side, &held);
            let word = |offset: u64| data + (offset - start) as usize / 8;
            let (mut from, mut to) = (at, stop);
            if let Some(head) = head.as_ref().filter(|head| head.at >= start) {
                self.memory.store_bytes(word(head.at), &head.data);
                from = head.at + SECTOR_BYTES;
            }
            if let Some(tail) = tail.as_ref().filter(|tail| tail.at < stop) {
                self.memory.store_bytes(word(tail.at), &tail.data);
                to = tail.at;
            }
            if from < to
                && let Some(middle) = bytes.get((from - offset) as usize..(to - offset) as usize)
            {
                self.memory.store_bytes(word(from), middle);
            }
            let sectors =
                bits((at - start) as usize / SECTOR, ((stop - start) as usize).div_ceil(SECTOR));
            if held.mask | sectors != held.mask {
                self.set_mask(&held, held.mask | sectors);
            }
            at = stop;
        }
        if end > side.length {
            side.length = end;
            self.put_side(&side);
        }
        Ok(bytes.len())
    }

    /// Whether all pages from `offset` to `end` can have a place.
    fn has_room(&self, side: &Side, offset: u64, end: u64) -> bool {
        let pages = offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES;
        let most = ((end - 1) / PAGE_BYTES - offset / PAGE_BYTES) as usize + 1;
        let room = self.most.saturating_sub(side.used);
        // Only a side that is nearly full has to be looked at.
        most <= room
            || pages
                .filter(|page| !matches!(self.find(side, *page), IndexEntry::Held(_)))
                .take(room + 1)
                .count()
                <= room
    }
}
