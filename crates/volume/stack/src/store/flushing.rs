//! A flush of disks in a thread of its own, so that who reads waits for none of it.

use crate::lasting::Lasting;
use crate::pulse::{AwaitedDisk, Pulse};
use anyhow::{Context, Result};
use belay_disk::{Disk, FileDisk};
use belay_service::stores::Flush;
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// What disks have answered.
type Flushed = Vec<io::Result<()>>;

/// Who flushes.
enum Flusher {
    Thread(JoinHandle<Flushed>),
    /// It is done: no thread was to be had.
    Nobody(Flushed),
}

/// A flush of disks.
pub(super) struct Flushing {
    flusher: Flusher,
    /// Its other end is closed when it is over.
    wakes: OwnedFd,
    /// What is remembered of each of the disks.
    lasting: Vec<Rc<RefCell<Lasting>>>,
    pulse: Pulse,
}

impl Flushing {
    /// One of these.
    pub(super) fn of<'d>(
        disks: impl Iterator<Item = &'d AwaitedDisk>,
        pulse: Pulse,
    ) -> Result<Self> {
        let (disks, lasting): (Vec<_>, Vec<_>) = disks.map(AwaitedDisk::parts).unzip();
        let (wakes, end) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        let shared = disks.clone();
        let flush = move || {
            let done = flush_all(&shared);
            // Whoever is woken by it may still have to wait a moment for the end of the thread.
            drop((shared, end));
            done
        };
        let thread = thread::Builder::new().name("flush".into()).spawn(flush);
        // Who reads waits for it then, which is better than a sync that fails.
        let done_here = |_| Flusher::Nobody(pulse.waiting(|| flush_all(&disks)));
        let flusher = thread.map_or_else(done_here, Flusher::Thread);
        Ok(Self { flusher, wakes, lasting, pulse })
    }

    /// What can be read when it is over.
    pub(super) fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}

fn flush_all(disks: &[Arc<FileDisk>]) -> Flushed {
    disks.iter().map(|disk| disk.flush()).collect()
}

impl Flush for Flushing {
    fn is_over(&self) -> bool {
        match &self.flusher {
            Flusher::Thread(thread) => thread.is_finished(),
            Flusher::Nobody(_) => true,
        }
    }

    fn end(self) -> Vec<io::Result<()>> {
        // Without a word of it nothing is durable.
        let panicked = || vec![Err(io::Error::other("the flush panicked"))];
        let flushed = match self.flusher {
            Flusher::Thread(thread) => {
                self.pulse.waiting(|| thread.join()).unwrap_or_else(|_| panicked())
            }
            Flusher::Nobody(flushed) => flushed,
        };
        for (lasting, done) in self.lasting.iter().zip(&flushed) {
            lasting.borrow_mut().flushed(done.is_ok());
        }
        flushed
    }
}
