//! Which free blocks are behind bitmaps that cannot be read.

use crate::error::Result;
use crate::geometry::BITS;
use crate::layout;
use crate::nodes::Key;
use crate::store::Store;
use belay_disk::Disk;

impl<D: Disk> Store<D> {
    /// The bitmap block with the bit of `block`, of a group that begins at `first`; `None` if it
    /// cannot be read. Its room is not counted on then.
    pub(super) fn known_bitmap(
        &mut self,
        block: u64,
        first: u64,
        free: u64,
    ) -> Result<Option<Key>> {
        let from = first.max(block / BITS * BITS);
        match self.bitmap_of(block) {
            Err(why) if why.is_unreadable() => {
                self.space.unknown.insert(from, free.min(BITS));
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// Looks at bitmaps with free blocks, for room behind those that cannot be read not to be
    /// promised. At most so many, so that a large store is opened as fast as a small one: of the
    /// others that is learnt when room is looked for in them.
    ///
    /// # Errors
    /// Those of blocks that make no sense.
    pub(crate) fn look_at_bitmaps(&mut self, most: u64) -> Result<()> {
        let geometry = self.geometry;
        let each = geometry.parameters.group_blocks.min(BITS);
        let mut left = most;
        for group in 0..geometry.groups() {
            if left == 0 {
                break;
            }
            let (first, end) = geometry.range_of(group);
            // A group costs a block as well, be it full.
            left -= 1;
            let free = match self.free_of(group) {
                Err(why) if why.is_unreadable() => {
                    self.space.unknown.insert(first, geometry.capacity_of(group));
                    continue;
                }
                // That may pass, and is no reason to promise less than there is.
                Err(why) if why.is_of_a_read() => continue,
                free => free?,
            };
            let mut at = first;
            while free > 0 && at < end && left > 0 {
                left -= 1;
                // Of one that was not written yet all is free.
                if self.has_bitmap(group, at)? {
                    match self.known_bitmap(at, first, free) {
                        Ok(Some(key)) => self.nodes.release(key),
                        Err(why) if !why.is_of_a_read() => return Err(why),
                        _ => {}
                    }
                }
                at += each;
            }
        }
        Ok(())
    }

    /// Whether the bitmap block with the bit of `block` was written. Its group can be read.
    fn has_bitmap(&mut self, group: u64, block: u64) -> Result<bool> {
        let Some(key) = self.known_group(group)? else { return Ok(false) };
        let number = block % self.geometry.parameters.group_blocks / BITS;
        Ok(!self.nodes.pointer(key, layout::bitmap_slot(number))?.is_null())
    }
}
