//! A checkpoint that is being taken, or what is being appended to the intent log. The disks are
//! flushed in the background, so that who reads waits for none of that: a flush can take as long as
//! a disk is busy.

use super::{Flush, Surroundings};
use anyhow::Result;
use belay_channel::StoreAnswer;
use belay_logical::Logical;

/// What somebody has asked for.
#[derive(Debug)]
pub(super) struct Taking<F> {
    /// Who.
    pub(super) client: u64,
    step: Step,
    flush: F,
}

/// What is flushed.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// All of a checkpoint but its roots.
    Blocks,
    /// Its roots.
    Roots,
    /// An append to the intent log.
    Append,
}

/// What comes after a flush.
pub(super) enum Next<F> {
    /// Another one.
    Flush(Taking<F>),
    /// It is done.
    Done(StoreAnswer),
}

impl<F: Flush> Taking<F> {
    /// Begins a checkpoint: it has to reach up to that transaction.
    pub(super) fn begin<S: Surroundings<Flush = F>>(
        volume: &mut Logical<S::Disk>,
        by: &mut S,
        client: u64,
        upto: u64,
    ) -> Result<Self> {
        volume.set_upto(upto)?;
        volume.begin_checkpoint()?;
        Ok(Self { client, step: Step::Blocks, flush: by.flush(volume.disks())? })
    }

    /// Begins to append something to the intent log; `None` if that has no room.
    pub(super) fn append<S: Surroundings<Flush = F>>(
        volume: &mut Logical<S::Disk>,
        by: &mut S,
        client: u64,
        bytes: &[u8],
    ) -> Result<Option<Self>> {
        if !volume.begin_append(bytes)? {
            return Ok(None);
        }
        // The intent log is on the first one.
        let flush = by.flush(volume.disks().take(1))?;
        Ok(Some(Self { client, step: Step::Append, flush }))
    }

    /// Goes on when the flush is over, for which it waits.
    pub(super) fn go_on<S: Surroundings<Flush = F>>(
        self,
        volume: &mut Logical<S::Disk>,
        by: &mut S,
    ) -> Result<Next<F>> {
        volume.flushed(self.flush.end())?;
        match self.step {
            Step::Blocks => {
                volume.seal_checkpoint()?;
                let flush = by.flush(volume.disks())?;
                Ok(Next::Flush(Self { client: self.client, step: Step::Roots, flush }))
            }
            Step::Roots => Ok(Next::Done(StoreAnswer::Number(volume.end_checkpoint()?))),
            Step::Append => {
                volume.end_append()?;
                Ok(Next::Done(StoreAnswer::Appended(true)))
            }
        }
    }

    /// What goes on after it.
    pub(super) fn flush(&self) -> &F {
        &self.flush
    }
}
