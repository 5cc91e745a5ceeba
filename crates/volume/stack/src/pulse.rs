//! How the processes of a volume show that they get on.

use crate::lasting::Lasting;
use crate::place::{Place, Role, open_private};
use anyhow::{Context, Result};
use belay_channel::client::Waits;
use belay_disk::{BLOCK, Disk, FileDisk};
use belay_memory::pulse;
use belay_sys::Mapping;
use rustix::fs::{FallocateFlags, fallocate};
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The pulse of this process.
#[derive(Clone, Debug)]
pub struct Pulse(pulse::Pulse<Arc<Mapping>>);

impl Pulse {
    /// That of a role, which this process has.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn of(place: &Place, role: Role) -> Result<Self> {
        Ok(Self(pulse::Pulse::new(map(place, role)?)))
    }

    /// It gets on.
    pub fn beat(&self) {
        self.0.beat();
    }

    /// It gives up, and is about to end.
    pub fn give_up(&self) {
        self.0.give_up();
    }

    /// What it does meanwhile is waiting for a disk.
    pub(crate) fn waiting<T>(&self, act: impl FnOnce() -> T) -> T {
        self.0.wait(true);
        let done = act();
        self.0.wait(false);
        done
    }
}

fn map(place: &Place, role: Role) -> Result<Arc<Mapping>> {
    let path = place.pulse(role);
    let file = open_private(&path)?;
    // Its room is taken: there would be no error later, but a signal.
    let bytes = pulse::BYTES as u64;
    fallocate(&file, FallocateFlags::empty(), 0, bytes)
        .with_context(|| format!("cannot take memory for {}", path.display()))?;
    let mapping = Mapping::new(file.as_fd(), pulse::BYTES).context("cannot map the pulse")?;
    Ok(Arc::new(mapping))
}

/// Makes those of all processes, so that a lack of memory is told before any of them begins.
///
/// # Errors
/// Those of the system calls.
pub fn make_all(place: &Place) -> Result<()> {
    Role::ALL.into_iter().try_for_each(|role| map(place, role).map(|_| ()))
}

/// Where the process with a role is told to end for good.
#[derive(Debug)]
pub struct Told(Arc<Mapping>);

impl Told {
    /// That of this role.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn of(place: &Place, role: Role) -> Result<Self> {
        Ok(Self(map(place, role)?))
    }

    /// Whether it is told.
    pub fn is_told(&self) -> bool {
        pulse::is_told(&self.0)
    }
}

/// How often another process was started.
#[derive(Clone, Debug)]
pub struct Lives(Arc<Mapping>);

impl Lives {
    /// The one with that role.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn of(place: &Place, role: Role) -> Result<Self> {
        Ok(Self(map(place, role)?))
    }

    /// So often.
    pub fn count(&self) -> u64 {
        pulse::lives(&self.0)
    }
}

impl Waits for Pulse {
    fn wait(&self, waits: bool) {
        self.0.wait(waits);
    }
}

/// A disk that is waited for, and which says of a read error that lasts that it does
/// ([`io::ErrorKind::InvalidData`]).
#[derive(Debug)]
pub struct AwaitedDisk {
    disk: Arc<FileDisk>,
    pulse: Pulse,
    lasting: Rc<RefCell<Lasting>>,
}

impl AwaitedDisk {
    /// This one, with what is remembered of it.
    pub(crate) fn new(disk: Arc<FileDisk>, pulse: Pulse, lasting: Rc<RefCell<Lasting>>) -> Self {
        Self { disk, pulse, lasting }
    }

    /// What is waited for, for whoever flushes it in another thread, and what is then told how that
    /// has ended ([`Lasting::flushed`]).
    pub(crate) fn parts(&self) -> (Arc<FileDisk>, Rc<RefCell<Lasting>>) {
        (Arc::clone(&self.disk), Rc::clone(&self.lasting))
    }
}

impl Disk for AwaitedDisk {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    fn read(&self, first: u64, out: &mut [u8]) -> io::Result<()> {
        let count = (out.len() / BLOCK) as u64;
        let done = self.pulse.waiting(|| self.disk.read(first, out));
        let mut lasting = self.lasting.borrow_mut();
        match done {
            // Of several blocks it is not known which one it is.
            Err(why) if count == 1 => Err(lasting.failed(first, why, Instant::now())),
            Err(why) => Err(why),
            Ok(()) => {
                lasting.is_well(first, count);
                Ok(())
            }
        }
    }

    fn write(&self, first: u64, data: &[u8]) -> io::Result<()> {
        self.pulse.waiting(|| self.disk.write(first, data))?;
        self.lasting.borrow_mut().wrote(first, (data.len() / BLOCK) as u64);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let done = self.pulse.waiting(|| self.disk.flush());
        self.lasting.borrow_mut().flushed(done.is_ok());
        done
    }
}
