//! How a process is asked to end.

use crate::place::{Place, Role};
use crate::pulse::Told;
use anyhow::{Context, Result};
use belay_sys::process_with_lock;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether anybody holds the mount still.
const LOOK: Duration = Duration::from_secs(1);

/// Gives what can be read when SIGTERM has come from who started this process, and has said so
/// before. Whoever else sends that, to all processes of a session for example, ends nobody by it:
/// the others need this one until they have ended. The terminal's signals are for whoever started
/// the mount, who ends it in its order.
///
/// # Errors
/// Those of the system calls.
pub fn asked_to_end(place: &Place, role: Role) -> Result<OwnedFd> {
    let (end, told) = UnixStream::pair()?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let asked = Told::of(place, role)?;
    let heard = move || {
        for signal in &mut signals {
            if signal == SIGTERM && asked.is_told() {
                // With its other end gone it can be read.
                drop(told);
                return;
            }
        }
    };
    let spawned = thread::Builder::new().name("signals".into()).spawn(heard);
    spawned.context("cannot start a thread")?;
    Ok(end.into())
}

/// Whether the processes that hold the mount have died, and those that need this one have ended:
/// nobody is left who would ask it to end.
///
/// The files by which that is seen are opened at the start: their names may be gone by then.
#[derive(Debug)]
pub struct Left {
    hold: File,
    by: Vec<File>,
    looked: Instant,
}

impl Left {
    /// By processes with these roles.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn new(place: &Place, by: &[Role]) -> Result<Self> {
        let by = by.iter().map(|role| place.open_lock(*role)).collect::<Result<_>>()?;
        Ok(Self { hold: place.open_hold()?, by, looked: Instant::now() })
    }

    /// Whether it is so. It is looked once a second.
    pub fn is_alone(&mut self) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        // What cannot be seen may be there.
        let is_gone = |lock: &File| process_with_lock(lock.as_fd()).is_ok_and(|one| one.is_none());
        let is_left = flock(&self.hold, FlockOperation::NonBlockingLockShared).is_ok();
        let _ = flock(&self.hold, FlockOperation::Unlock);
        is_left && self.by.iter().all(is_gone)
    }
}
