//! How a checkpoint is taken (Loris IV-A): all that was changed is written, to places that do not belong to the last checkpoint; when that
//! is durable the root is written, and when that is durable the checkpoint is there.

use crate::blocks;
use crate::error::Result;
use crate::store::Store;
use belay_disk::Disk;

impl<D: Disk> Store<D> {
    /// Takes a checkpoint; gives its epoch. If it fails, one of the two is there: this one, or the one before.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed) if an earlier change failed; those of the disk. No change can be made then.
    pub fn checkpoint(&mut self) -> Result<u64> {
        self.whole(|this| {
            // Whatever fails here leaves blocks half written.
            this.root_mut()?;
            this.overwrite()?;
            this.nodes.write(&this.disk)?;
            blocks::flush(&this.disk)?;
            this.write_root()?;
            blocks::flush(&this.disk)?;
            let epoch = this.nodes.epoch();
            this.nodes.begin(epoch + 1);
            this.space.checkpointed();
            this.resync.checkpointed();
            this.begin_area()?;
            Ok(epoch)
        })
    }
}
