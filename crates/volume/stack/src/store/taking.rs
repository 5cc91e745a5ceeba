//! A checkpoint that is being taken, or what is being appended to the intent log. The disks are flushed in a thread, so that who reads waits
//! for none of that: a flush can take as long as a disk is busy.

use crate::pulse::AwaitedDisk;
use anyhow::{Context, Result};
use belay_channel::StoreAnswer;
use belay_disk::Disk;
use belay_logical::Logical;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

/// What somebody has asked for.
#[derive(Debug)]
pub(super) struct Taking {
    /// Who.
    pub(super) client: u64,
    step: Step,
    flush: Flush,
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
pub(super) enum Next {
    /// Another one.
    Flush(Taking),
    /// It is done.
    Done(StoreAnswer),
}

impl Taking {
    /// Begins a checkpoint: it has to reach up to that transaction.
    pub(super) fn begin(volume: &mut Logical<AwaitedDisk>, client: u64, upto: u64) -> Result<Self> {
        volume.set_upto(upto)?;
        volume.begin_checkpoint()?;
        Ok(Self { client, step: Step::Blocks, flush: Flush::of(volume.disks())? })
    }

    /// Begins to append something to the intent log; `None` if that has no room.
    pub(super) fn append(
        volume: &mut Logical<AwaitedDisk>,
        client: u64,
        bytes: &[u8],
    ) -> Result<Option<Self>> {
        if !volume.begin_append(bytes)? {
            return Ok(None);
        }
        // The intent log is on the first one.
        let flush = Flush::of(volume.disks().take(1))?;
        Ok(Some(Self { client, step: Step::Append, flush }))
    }

    /// Goes on when the flush is over, for which it waits.
    pub(super) fn go_on(self, volume: &mut Logical<AwaitedDisk>) -> Result<Next> {
        let flushed = self.flush.end();
        for (disk, done) in volume.disks().zip(&flushed) {
            disk.flushed(done.is_ok());
        }
        volume.flushed(flushed)?;
        match self.step {
            Step::Blocks => {
                volume.seal_checkpoint()?;
                Ok(Next::Flush(Self {
                    step: Step::Roots,
                    flush: Flush::of(volume.disks())?,
                    ..self
                }))
            }
            Step::Roots => Ok(Next::Done(StoreAnswer::Number(volume.end_checkpoint()?))),
            Step::Append => {
                volume.end_append()?;
                Ok(Next::Done(StoreAnswer::Appended(true)))
            }
        }
    }

    /// Whether the flush is over.
    pub(super) fn is_flushed(&self) -> bool {
        self.flush.thread.is_finished()
    }

    /// What can be read when it is.
    pub(super) fn wakes(&self) -> BorrowedFd<'_> {
        self.flush.wakes.as_fd()
    }
}

/// A flush of disks.
#[derive(Debug)]
struct Flush {
    thread: JoinHandle<Vec<io::Result<()>>>,
    /// Its other end is closed when the thread ends.
    wakes: OwnedFd,
}

impl Flush {
    fn of<'d>(disks: impl Iterator<Item = &'d AwaitedDisk>) -> Result<Self> {
        let disks: Vec<_> = disks.map(AwaitedDisk::disk).collect();
        let (wakes, end) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        let flush = move || {
            let done = disks.iter().map(|disk| disk.flush()).collect();
            // Whoever is woken by it may still have to wait a moment for the end of the thread.
            drop((disks, end));
            done
        };
        let thread = thread::Builder::new().name("flush".into()).spawn(flush);
        Ok(Self { thread: thread.context("cannot start a thread")?, wakes })
    }

    fn end(self) -> Vec<io::Result<()>> {
        // Without a word of it nothing is durable.
        self.thread.join().unwrap_or_else(|_| vec![Err(io::Error::other("the flush panicked"))])
    }
}
