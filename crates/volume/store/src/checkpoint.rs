//! How a checkpoint is taken (Loris IV-A): all that was changed is written, to places that do not belong to the last checkpoint; when that
//! is durable the root is written, and when that is durable the checkpoint is there.

use crate::error::{Error, Result};
use crate::store::Store;
use belay_disk::Disk;

impl<D: Disk> Store<D> {
    /// Takes a checkpoint; gives its epoch. If it fails, one of the two is there: this one, or the one before.
    ///
    /// # Errors
    /// [`Error::Failed`] if an earlier change failed; those of the disk. No change can be made then.
    pub fn checkpoint(&mut self) -> Result<u64> {
        self.whole(|this| {
            // Whatever fails here leaves blocks half written.
            this.set_root(&this.root()?)?;
            this.overwrite()?;
            this.nodes.write(&this.disk)?;
            this.flush()?;
            this.write_root()?;
            this.flush()?;
            let epoch = this.nodes.epoch();
            this.nodes.begin(epoch + 1);
            this.space.checkpointed();
            this.resync.checkpointed();
            this.tail = None;
            Ok(epoch)
        })
    }

    fn flush(&self) -> Result<()> {
        self.disk.flush().map_err(|why| Error::Disk { what: "flush", block: 0, why })
    }
}
