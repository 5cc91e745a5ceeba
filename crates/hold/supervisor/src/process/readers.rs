//! Reading what the kernel says of processes that may be in the middle of execve(2), which waits
//! for others.
//!
//! Such a process closes what it has marked close-on-exec, and closing a file of a FUSE mount waits
//! for its daemon (FUSE_FLUSH). It does so under a lock (`exec_update_lock`), and no signal ends
//! it. Who reads its `stat`, its links (`exe`, `cwd`, `fd/N`, `ns/mnt`) or anything of its memory,
//! or copies a descriptor of its, waits along (Linux 6.18). So does ps(1). `status`, `statm`,
//! `comm`, `limits`, `cgroup`, `mountinfo`, `fdinfo`, `task` and `children` take no such lock.
//!
//! The rule: what takes it is read here, so that nobody but a thread waits: the daemon that all
//! wait for may be the one that belay is about to replace.

use crate::threads::start_within;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a reader may take: so many slices. The lock is held for an instant otherwise, and a
/// standstill of the whole machine costs one slice.
const SLICES: u32 = 20;
const SLICE: Duration = Duration::from_millis(50);

/// Threads that read, each for one process, and that end with it.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<BTreeMap<u32, Arc<AtomicBool>>>);

impl Readers {
    /// So many may have been given up and not have come back.
    const MOST: usize = 16;

    /// None so far.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Has a thread read something of process `pid`; where no thread is to be had it is read here.
    ///
    /// # Errors
    /// `TimedOut` if it takes a second; at once, as long as an earlier reader of that process, or
    /// [`Readers::MOST`] of others, have not come back. Nothing is known then.
    pub fn at<T: Send + 'static>(
        &self,
        pid: u32,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let given_up = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut given_up = given_up();
            given_up.retain(|_, is_back| !is_back.load(Relaxed));
            if given_up.len() >= Self::MOST || given_up.contains_key(&pid) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        let is_back = Arc::new(AtomicBool::new(false));
        let comes_back = Arc::clone(&is_back);
        let (tell, told) = sync_channel(1);
        let work = move || {
            let found = read();
            comes_back.store(true, Relaxed);
            let _ = tell.send(found);
        };
        if let Err((_, work)) = start_within(Duration::ZERO, "reader", work) {
            work();
        }
        let found = (0..SLICES).find_map(|_| told.recv_timeout(SLICE).ok());
        found.ok_or_else(|| {
            given_up().insert(pid, is_back);
            io::ErrorKind::TimedOut.into()
        })
    }

    /// Whether a reader of process `pid` was given up and has not come back.
    pub fn waits_for(&self, pid: u32) -> bool {
        let given_up = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.get(&pid).is_some_and(|is_back| !is_back.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_does_not_come_back_is_not_looked_at_again_until_then() {
        let readers = Arc::new(Readers::new());
        assert_eq!(readers.at(1, || 1).ok(), Some(1));
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let waits = || {
            let gate = Arc::clone(&gate);
            move || gate.lock().map(|gate| gate.recv().is_ok()).is_ok()
        };
        let is_late = |found: io::Result<bool>| {
            found.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        assert!(is_late(readers.at(1, waits())));
        assert!(readers.at(1, || 1).is_err(), "nobody waits for it twice");
        assert!(readers.waits_for(1) && !readers.waits_for(2));
        assert_eq!(readers.at(2, || 2).ok(), Some(2), "others are read of");
        let others: Vec<_> = (2..=Readers::MOST as u32)
            .map(|pid| {
                let (readers, waits) = (Arc::clone(&readers), waits());
                std::thread::spawn(move || readers.at(pid, waits))
            })
            .collect();
        for other in others {
            assert!(is_late(other.join().expect("no panic")));
        }
        assert!(readers.at(200, || 1).is_err(), "they are few");
        drop(open);
        let end = std::time::Instant::now() + 20 * SLICE;
        while readers.at(1, || 1).ok() != Some(1) {
            assert!(std::time::Instant::now() < end, "it has come back");
        }
        assert!(!readers.waits_for(1));
    }
}
