//! Looks at processes that may be in the middle of execve(2), which waits for others.
//!
//! Such a process closes what it has marked close-on-exec, and closing a file of a FUSE mount waits for its daemon (FUSE_FLUSH). It does so
//! under a lock (`exec_update_lock`), and no signal ends it. Who reads its `stat`, its links (`exe`, `cwd`, `fd/N`, `ns/mnt`) or
//! anything of its memory, or copies a descriptor of its, waits along (Linux 6.18). So does ps(1). `status`, `statm`, `comm`, `limits`,
//! `cgroup`, `mountinfo`, `fdinfo`, `task` and `children` take no such lock.
//!
//! The rule: what takes it is read here, so that nobody but a thread waits: the daemon that all wait for may be the one that belay is
//! about to replace.

use crate::threads::start_within;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a look may take. The lock is held for an instant otherwise.
const LIMIT: Duration = Duration::from_secs(1);

/// Looks at processes, each in a thread that ends with it.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<BTreeMap<u32, Arc<AtomicBool>>>);

impl Looks {
    /// So many may have been given up and not have come back.
    const MOST: usize = 16;

    /// None so far.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Has a thread look at process `pid`. `None` if it does not come back in time; at once, as long as an earlier one has not.
    pub fn at<T: Send + 'static>(
        &'static self,
        pid: u32,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.within(LIMIT, pid, look)
    }

    fn within<T: Send + 'static>(
        &'static self,
        limit: Duration,
        pid: u32,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let given_up = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut given_up = given_up();
            given_up.retain(|_, is_back| !is_back.load(Relaxed));
            if given_up.len() >= Self::MOST || given_up.contains_key(&pid) {
                return None;
            }
        }
        let is_back = Arc::new(AtomicBool::new(false));
        let comes_back = Arc::clone(&is_back);
        let (tell, told) = sync_channel(1);
        let work = move || {
            let seen = look();
            comes_back.store(true, Relaxed);
            let _ = tell.send(seen);
        };
        start_within(Duration::ZERO, "look", work).ok()?;
        let seen = told.recv_timeout(limit).ok();
        if seen.is_none() {
            given_up().insert(pid, is_back);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_does_not_come_back_is_not_looked_at_again_until_then() {
        static LOOKS: Looks = Looks::new();
        const SHORT: Duration = Duration::from_millis(5);
        assert_eq!(LOOKS.at(1, || 1), Some(1));
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let waits = || {
            let gate = Arc::clone(&gate);
            move || gate.lock().map(|gate| gate.recv().is_ok()).is_ok()
        };
        assert_eq!(LOOKS.within(SHORT, 1, waits()), None);
        assert_eq!(LOOKS.at(1, || 1), None, "nobody waits for it twice");
        assert_eq!(LOOKS.at(2, || 2), Some(2), "others are looked at");
        for pid in 2..100 {
            assert_eq!(LOOKS.within(SHORT, pid, waits()), None);
        }
        assert_eq!(LOOKS.0.lock().map(|looks| looks.len()).ok(), Some(Looks::MOST));
        assert_eq!(LOOKS.at(200, || 1), None, "they are few");
        drop(open);
        let end = std::time::Instant::now() + LIMIT;
        while LOOKS.at(1, || 1) != Some(1) {
            assert!(std::time::Instant::now() < end, "it has come back");
        }
    }
}
