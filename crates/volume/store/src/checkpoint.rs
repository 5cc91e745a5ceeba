//! How a checkpoint is taken (Loris IV-A): all that was changed is written, to places that do not
//! belong to the last checkpoint; when that is durable the root is written, and when that is
//! durable the checkpoint is there.
//!
//! Whoever takes it in steps can read meanwhile, which a disk that takes long to flush does not
//! hold up.

use crate::error::{Error, Result};
use crate::step::Step;
use crate::store::Store;
use belay_disk::Disk;
use std::io;

impl<D: Disk> Store<D> {
    /// Takes a checkpoint; gives its epoch. If it fails, one of the two is there: this one, or the
    /// one before.
    ///
    /// # Errors
    /// [`Error::Failed`] if an earlier change failed; those of the disk. No change can be made
    /// then.
    pub fn checkpoint(&mut self) -> Result<u64> {
        self.begin_checkpoint()?;
        self.flush()?;
        self.seal_checkpoint()?;
        self.flush()?;
        self.end_checkpoint()
    }

    /// The first step: writes all but the root. Until the last one nothing can be changed. A flush
    /// comes next ([`Store::flush`], or one that [`Store::flushed`] is told of).
    ///
    /// # Errors
    /// As for [`Store::checkpoint`].
    pub fn begin_checkpoint(&mut self) -> Result<()> {
        self.at(Step::Changing, |this| {
            // Whatever fails here leaves blocks half written.
            this.root_mut()?;
            this.overwrite()?;
            this.nodes.write(&this.disk)
        })?;
        self.step = Step::Written;
        Ok(())
    }

    /// The second step, when the first one is durable: writes the root. A flush comes next.
    ///
    /// # Errors
    /// As for [`Store::checkpoint`].
    pub fn seal_checkpoint(&mut self) -> Result<()> {
        self.at(Step::Written, Self::write_root)?;
        self.step = Step::Sealed;
        Ok(())
    }

    /// The last step, when the second one is durable: the next epoch begins. Gives the one that has
    /// ended.
    ///
    /// # Errors
    /// As for [`Store::checkpoint`].
    pub fn end_checkpoint(&mut self) -> Result<u64> {
        let epoch = self.at(Step::Sealed, |this| {
            let epoch = this.nodes.epoch();
            this.nodes.begin(epoch + 1);
            this.space.checkpointed();
            this.resync.checkpointed();
            this.is_next_broken = false;
            this.begin_area()?;
            Ok(epoch)
        })?;
        self.step = Step::Changing;
        Ok(epoch)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Those of the disk. No change can be made then.
    pub fn flush(&mut self) -> Result<()> {
        let done = self.disk.flush();
        self.flushed(done)
    }

    /// The same, by whoever has had the disk flush: with how that has ended.
    ///
    /// # Errors
    /// As for [`Store::flush`].
    pub fn flushed(&mut self, done: io::Result<()>) -> Result<()> {
        done.map_err(|why| {
            let error = Error::Disk { what: "flush", block: 0, why };
            self.fail(&error);
            error
        })
    }
}
