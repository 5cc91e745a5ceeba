//! Reading: the layers, one over the other.

use super::area::Overlay;
use super::capacity::{PAGE, SECTOR, bits};
use super::epochs::{Side, State};
use super::refused::Corrupt;
use super::refused::Refused;
use belay_memory::Memory;

const PAGE_BYTES: u64 = PAGE as u64;
/// What is read from the image though it is held: a gap up to this long costs less than one more
/// call.
const GAP: u64 = 16 << 10;

impl<M: Memory> Overlay<'_, M> {
    /// Reads what the daemon sees from `offset` on: as much as there is, up to the image's length.
    /// What is on the disk is read by `image`, as by pread(2): it gives how much there was. Where
    /// nothing is held, that is one call for all of `out`.
    ///
    /// # Errors
    /// Those of `image`, or if the memory is corrupt.
    pub fn read<E>(
        &self,
        offset: u64,
        out: &mut [u8],
        mut image: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, Refused<E>> {
        let state = self.state()?;
        let there = state.current.length.saturating_sub(offset).min(out.len() as u64) as usize;
        let out = out.get_mut(..there).unwrap_or_default();
        self.see(&state, offset, out, &mut image).map_err(Refused::Image)?;
        Ok(there)
    }

    /// Whether the daemon sees anything but the image in `len` bytes from `offset` on, all of them
    /// before the image's length.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn differs(&self, offset: u64, len: usize) -> Result<bool, Corrupt> {
        let state = self.state()?;
        let end = offset.saturating_add(len as u64).min(state.current.length);
        if end <= offset {
            return Ok(false);
        }
        Ok(end > state.limit()
            || (offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES)
                .any(|page| self.held_by_any(&state, page) != 0))
    }

    /// Makes what the daemon sees of what was read from `offset` of the image, with zeros behind
    /// the image's end: for those who read into several buffers at once. The image must have been
    /// read since the last write and seal.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn patch(&self, offset: u64, out: &mut [u8]) -> Result<(), Corrupt> {
        let state = self.state()?;
        let there = state.current.length.saturating_sub(offset).min(out.len() as u64) as usize;
        self.paint(&state, offset, out.get_mut(..there).unwrap_or_default());
        Ok(())
    }

    /// Reads through all layers; what lies behind the length reads as zeros. `offset` and what is
    /// behind `out` must be places in a file.
    #[inline]
    pub(super) fn see<E>(
        &self,
        state: &State,
        offset: u64,
        out: &mut [u8],
        image: &mut impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if out.is_empty() {
            return Ok(());
        }
        let end = offset + out.len() as u64;
        let limit = state.limit();
        let mut differs = end > limit;
        let mut run = (offset, offset);
        let mut fetch = |out: &mut [u8], (from, to): (u64, u64)| {
            let place = out.get_mut((from - offset) as usize..(to - offset) as usize);
            let Some(place) = place.filter(|place| !place.is_empty()) else { return Ok(()) };
            let there = image(from, place)?;
            place.get_mut(there..).unwrap_or_default().fill(0);
            Ok(())
        };
        for page in offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES {
            let start = page * PAGE_BYTES;
            let held = self.held_by_any(state, page);
            differs |= held != 0;
            let before = limit.saturating_sub(start).min(PAGE_BYTES) as usize;
            for (from, to) in runs(!held & bits(0, before.div_ceil(SECTOR))) {
                let (from, to) = ((start + from).max(offset), (start + to).min(end));
                if from >= to {
                    continue;
                }
                if run.0 == run.1 || from - run.1 > GAP {
                    fetch(out, run)?;
                    run = (from, to);
                }
                run.1 = to;
            }
        }
        fetch(out, run)?;
        if differs {
            self.paint(state, offset, out);
        }
        Ok(())
    }

    /// Puts what the sides hold, and the zeros behind their cuts, over what was read from the
    /// image.
    fn paint(&self, state: &State, offset: u64, out: &mut [u8]) {
        for side in state.sealed.iter().chain([&state.current]) {
            let cut = side.cut.saturating_sub(offset).min(out.len() as u64) as usize;
            out.get_mut(cut..).unwrap_or_default().fill(0);
            if side.used > 0 {
                self.paint_side(side, offset, out);
            }
        }
    }

    fn paint_side(&self, side: &Side, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        if end == offset {
            return;
        }
        for page in offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES {
            let start = page * PAGE_BYTES;
            let (mask, data) = self.sectors(side, page);
            for (from, to) in runs(mask) {
                let (from, to) = ((start + from).max(offset), (start + to).min(end));
                let place =
                    (from.saturating_sub(offset)) as usize..(to.saturating_sub(offset)) as usize;
                if let Some(place) = out.get_mut(place)
                    && from < to
                {
                    self.memory.load_unaligned(data * 8 + (from - start) as usize, place);
                }
            }
        }
    }

    /// The sectors of a page that any side holds.
    #[inline]
    fn held_by_any(&self, state: &State, page: u64) -> u8 {
        let (mine, _) = self.sectors(&state.current, page);
        mine | state.sealed.as_ref().map_or(0, |sealed| self.sectors(sealed, page).0)
    }
}

impl State {
    /// Where the image ends for those who look through both sides.
    #[inline]
    fn limit(&self) -> u64 {
        self.sealed.as_ref().map_or(u64::MAX, |sealed| sealed.cut).min(self.current.cut)
    }
}

/// The runs of sectors in a mask, as bytes of the page.
#[inline]
pub(super) fn runs(mut mask: u8) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let from = mask.trailing_zeros();
        let to = from + (mask >> from).trailing_ones();
        mask &= !bits(0, to as usize);
        Some((u64::from(from) * SECTOR as u64, u64::from(to) * SECTOR as u64))
    })
}
