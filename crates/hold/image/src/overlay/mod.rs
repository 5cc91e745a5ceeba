//! The overlay: what the daemon has written to its image since the image was last brought up to
//! date.
//!
//! Two *sides*, each an index from image pages to pages of its pool, with a mask of the sectors
//! held. An index that is half full is replaced by one of twice the size. The *current* side takes
//! the daemon's writes. The *sealed* one is that of the epoch before: it is on its way to the
//! image, or there.
//!
//! ```text
//! what the daemon sees  =  current side  over  sealed side, unless committed  over  image
//! ```
//!
//! Invariants
//! * The number of the current epoch is one word, and the side its lowest bit. [`Overlay::seal`]
//!   changes it by one store, when all else is in place; so at any instant at which the daemon may
//!   die an epoch is sealed or it is not.
//! * The current side may be in any state when the daemon dies: it is dropped as a whole. The
//!   sealed side is not touched by anybody until its epoch is committed, and not looked at from
//!   then on.
//! * An entry belongs to its side while it carries the side's *stamp*, which changes whenever the
//!   side is emptied. So that is one store too, whatever was in the side.
//! * Of the bytes that a side does not hold, those from its *cut* on are zeros and those before are
//!   what is below. Bytes that are held and lie behind the length are zeros.
//!
//! One thread at a time writes, seals, or changes the length, and no other reads meanwhile: the
//! caller has a lock for that, which dies with the daemon. The committer, another process, needs
//! none.

mod area;
mod capacity;
mod epochs;
mod filter;
mod index;
mod layers;
mod refused;
mod sealed;
mod write;

pub use area::Overlay;
pub(crate) use capacity::FURTHEST;
pub use capacity::{Capacity, PAGE, SECTOR};
pub use refused::{Corrupt, Refused};
pub use sealed::{Run, Sealed};

use belay_memory::Memory;
use capacity::{PAGE_WORDS, bits};
use epochs::State;
use index::IndexEntry;
use std::ops::Range;

impl<M: Memory> Overlay<'_, M> {
    /// The length of the image as the daemon sees it.
    ///
    /// # Errors
    /// If the memory is corrupt.
    #[inline]
    pub fn length(&self) -> Result<u64, Corrupt> {
        Ok(self.state()?.current.length)
    }

    /// Bytes of the pool that the current epoch has taken: what it has written, in whole pages.
    ///
    /// # Errors
    /// If the memory is corrupt.
    #[inline]
    pub fn dirty_bytes(&self) -> Result<u64, Corrupt> {
        Ok(self.state()?.current.used.min(self.capacity.bounded()) as u64 * PAGE as u64)
    }

    /// First word of the page that is taken next, if there is room: so that it can be brought near.
    ///
    /// # Errors
    /// If the memory is corrupt.
    #[inline]
    pub fn next_page(&self) -> Result<usize, Corrupt> {
        let side = self.state()?.current;
        Ok(side.pool + side.used.min(self.capacity.bounded()) * PAGE_WORDS)
    }

    /// Whether the current epoch differs from the one before: by data, or by the length alone.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn is_dirty(&self) -> Result<bool, Corrupt> {
        let State { current, .. } = self.state()?;
        Ok(current.used > 0 || current.cut != current.length || current.length != current.start)
    }

    /// Makes the image shorter or longer, as ftruncate(2) does.
    ///
    /// # Errors
    /// [`Refused::TooFar`], or if the memory is corrupt.
    pub fn set_length(&self, length: u64) -> Result<(), Refused<std::convert::Infallible>> {
        let State { mut current, .. } = self.state()?;
        if length > FURTHEST {
            return Err(Refused::TooFar);
        }
        if length < current.length {
            self.drop_behind(&current, length);
            current.cut = current.cut.min(length);
        }
        current.length = length;
        self.put_side(&current);
        Ok(())
    }

    /// Drops what the current epoch has written, and so makes the image what it was at the last
    /// checkpoint. `image_length` is the image's length on the disk. Dying in here is as dying
    /// before.
    ///
    /// # Errors
    /// If the memory is corrupt: the last checkpoint may be lost.
    pub fn discard_current(&self, image_length: u64) -> Result<(), Corrupt> {
        let State { mut current, sealed, .. } = self.state()?;
        let length = match sealed {
            Some(sealed) if !self.is_whole(&sealed) => return Err(Corrupt),
            Some(sealed) => sealed.length,
            None => image_length.min(FURTHEST),
        };
        self.empty(&mut current, length);
        Ok(())
    }

    /// Whether [`Overlay::discard_current`] was ever called: before, there is no epoch that could
    /// be sealed.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn is_begun(&self) -> Result<bool, Corrupt> {
        let State { epoch, current, .. } = self.state()?;
        Ok(epoch > 1 || current.stamp > 0)
    }

    /// Whether the epoch before the current one is on the image, so that the current one can be
    /// sealed.
    ///
    /// # Errors
    /// If the memory is corrupt.
    #[inline]
    pub fn can_seal(&self) -> Result<bool, Corrupt> {
        Ok(self.state()?.sealed.is_none())
    }

    /// Ends the current epoch and begins the next, which is at first no different. Gives the number
    /// of the one that ended; `None`, and nothing is done, while the epoch before is not on the
    /// image.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn seal(&self) -> Result<Option<u64>, Corrupt> {
        let State { epoch, current, sealed, .. } = self.state()?;
        if sealed.is_some() {
            return Ok(None);
        }
        let mut next = self.side(epoch + 1);
        self.empty(&mut next, current.length);
        self.begin_epoch(epoch + 1);
        Ok(Some(epoch))
    }

    /// Bytes of the memory that hold nothing now: what earlier epochs have taken of the current
    /// side's pool, and the pool of the other side, unless that is sealed. The one who writes and
    /// seals may give them back to the system; nobody else may, as they could be in use again by
    /// then.
    ///
    /// # Errors
    /// If the memory is corrupt.
    pub fn spare(&self) -> Result<[Range<usize>; 2], Corrupt> {
        let State { epoch, current, sealed } = self.state()?;
        let pool = |side: &epochs::Side, used: usize| {
            let end = side.pool + self.capacity.pool_words();
            (side.pool + used.min(self.capacity.bounded()) * PAGE_WORDS) * 8..end * 8
        };
        if self.capacity.pages == 0 {
            return Ok([0..0, 0..0]);
        }
        let other = if sealed.is_none() { pool(&self.side(epoch + 1), 0) } else { 0..0 };
        Ok([pool(&current, current.used), other])
    }

    /// Drops what a side holds behind `length`, and makes zeros of the rest of a sector that it
    /// cuts.
    fn drop_behind(&self, side: &epochs::Side, length: u64) {
        let (page, within) = (length / PAGE as u64, (length % PAGE as u64) as usize);
        for at in 0..side.entries {
            if let Some((found, held)) = self.entry(side, at)
                && found > page
            {
                self.set_mask(&held, 0);
            }
        }
        let IndexEntry::Held(held) = self.find(side, page) else { return };
        let sectors = within.div_ceil(SECTOR);
        self.set_mask(&held, held.mask & bits(0, sectors));
        if !within.is_multiple_of(SECTOR) && held.mask & bits(sectors - 1, sectors) != 0 {
            let mut sector = [0; SECTOR];
            let at = self.data(side, &held) + (sectors - 1) * SECTOR / 8;
            self.memory.load_bytes(at, &mut sector);
            if let Some(rest) = sector.get_mut(within % SECTOR..) {
                rest.fill(0);
            }
            self.memory.store_bytes(at, &sector);
        }
    }
}
