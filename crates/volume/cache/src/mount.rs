//! Which mount the memory serves. It outlives a mount whose processes have all died: the next one
//! goes on with what is published, but its requests have numbers of their own.

use crate::error::Error;
use crate::index::Index;
use crate::layout::{CLEARED, GENERATIONS, MAGIC, MOUNT, MOUNT_FIRST};
use crate::log::Slot;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::PAGE;

/// Says that it is a cache's memory, of this version. It is another one as soon as its layout is
/// another one, or the messages are between the processes that use it: those of two versions never
/// work together.
const VALID: u64 = u64::from_le_bytes(*b"belaych4");

/// Transactions that the next life of a process reads within a few milliseconds.
const MOST_READ: u64 = 1024;

/// Whether a memory that begins with that word ([`MAGIC`]) was set up, or has begun to be, by a
/// belay that keeps it in another way.
pub fn is_of_another_version(magic: u64) -> bool {
    ![0, VALID].contains(&magic)
}

impl<M: Memory> Shared<M> {
    /// Whether the memory was set up. One of zeros was not.
    pub fn is_valid(&self) -> bool {
        self.memory.load(MAGIC) == VALID
    }

    /// It is set up: the last thing of that, so that whoever died before begins anew.
    pub fn set_valid(&self) {
        self.memory.store(MAGIC, VALID);
    }

    /// A mount begins, or its cache's next life. What is published was not asked for by this mount,
    /// if it is a new one.
    pub fn begin_mount(&self, mount: u64) {
        if self.is_mounted(mount) {
            return;
        }
        let next = self.published();
        // Since the last mount the intent log may have been cut, or be that of a copy. What is in
        // it twice is done once.
        self.set_logged(0);
        self.memory.store(MOUNT_FIRST, next);
        self.memory.store(MOUNT, mount);
    }

    /// The number of the transaction that is published next.
    pub fn published(&self) -> u64 {
        let mut next = self.durable();
        while next < self.end() && matches!(self.slot(next), Slot::Published(_)) {
            next += 1;
        }
        next
    }

    /// Whether this mount has begun.
    pub fn is_mounted(&self, mount: u64) -> bool {
        self.memory.load(MOUNT) == mount
    }

    /// Whether a transaction is of the mount that is served.
    pub(crate) fn is_of_mount(&self, number: u64) -> bool {
        number >= self.memory.load(MOUNT_FIRST)
    }

    /// A number for the next life of a publisher, which no other has.
    pub fn next_generation(&self) -> u32 {
        // What belongs to generation 0 is nobody's.
        (self.memory.add(GENERATIONS, 1) as u32).wrapping_add(1).max(1)
    }

    /// Whether files without a name were removed that an earlier mount had left.
    pub fn is_cleared(&self, mount: u64) -> bool {
        self.memory.load(CLEARED) == mount
    }

    /// They were.
    pub fn set_cleared(&self, mount: u64) {
        self.memory.store(CLEARED, mount);
    }

    /// Whether so much is published that a checkpoint is due before its time: half of what there is
    /// room for, or as much as the next life of a process can read without being missed. Frames and
    /// cells are counted by their own.
    pub fn has_much(&self) -> bool {
        let much = (u64::from(self.layout.capacity.slots) / 2).min(MOST_READ);
        let is_far = !matches!(self.slot(self.durable() + much), Slot::Free);
        is_far || [self.frames(), self.cells()].iter().any(|pool| pool.free() < pool.count() / 2)
    }

    /// Whether all that was published is in a checkpoint of the stores: nothing is lost with this
    /// memory.
    pub fn is_empty(&self) -> bool {
        self.slot(self.durable()) == Slot::Free && self.sealed().is_none()
    }

    /// Whether what is in it comes after the checkpoint that the stores have, which reaches up to a
    /// transaction: nobody has changed them since without it.
    pub fn comes_after(&self, epoch: u64, upto: u64) -> bool {
        let durable = self.durable_epoch();
        let is_noted = (epoch, upto) == (durable, self.durable());
        // It was taken, and its process died before it could note that.
        let taken = self.sealed().map(|sealed| (durable + 1, sealed));
        is_noted || taken == Some((epoch, upto))
    }

    /// Reads all that is published and not in a checkpoint that is noted, as the next checkpoint
    /// does. Gives how many transactions that is.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn read_all<L>(&self) -> Result<u64, Error<L>> {
        let mut index = Index::of(self);
        index.catch_up(self, u64::MAX).map_err(|why| Error::Damaged(why.why()))?;
        let (next, slots) = (index.next(), u64::from(self.layout.capacity.slots));
        // Behind the last one is a free slot, or one that is still another transaction's. That of
        // the last one that was trimmed may be, too: it is made free after that.
        let is_behind = next.saturating_add(1) >= self.trimmed().saturating_add(slots);
        if !is_behind && self.slot(next) != Slot::Free {
            return Err(Error::Damaged("its log has no end"));
        }
        let mut content = [0; PAGE];
        for (object, changed) in index.objects() {
            for (page, (version, _)) in &changed.pages {
                if let Some(version) = version
                    && !self.read_page(*version, object, *page, &mut content)
                {
                    return Err(Error::Damaged("a page does not match its checksum"));
                }
            }
        }
        Ok(next.saturating_sub(self.durable()))
    }
}
