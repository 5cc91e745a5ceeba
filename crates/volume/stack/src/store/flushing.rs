//! A flush of disks in a thread of its own, so that who reads waits for none of it.

use crate::lasting::Lasting;
use crate::pulse::{AwaitedDisk, Pulse};
use anyhow::{Context, Result};
use belay_disk::Disk;
use belay_service::stores::Flush;
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::thread::{self, JoinHandle};

/// A flush of disks.
pub(super) struct Flushing {
    thread: JoinHandle<Vec<io::Result<()>>>,
    /// Its other end is closed when the thread ends.
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
        let flush = move || {
            let done = disks.iter().map(|disk| disk.flush()).collect();
            // Whoever is woken by it may still have to wait a moment for the end of the thread.
            drop((disks, end));
            done
        };
        let thread = thread::Builder::new().name("flush".into()).spawn(flush);
        Ok(Self { thread: thread.context("cannot start a thread")?, wakes, lasting, pulse })
    }

    /// What can be read when it is over.
    pub(super) fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}

impl Flush for Flushing {
    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    fn end(self) -> Vec<io::Result<()>> {
        let flushed = self.pulse.waiting(|| self.thread.join());
        // Without a word of it nothing is durable.
        let panicked = || vec![Err(io::Error::other("the flush panicked"))];
        let flushed = flushed.unwrap_or_else(|_| panicked());
        for (lasting, done) in self.lasting.iter().zip(&flushed) {
            lasting.borrow_mut().flushed(done.is_ok());
        }
        flushed
    }
}
