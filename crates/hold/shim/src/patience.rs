//! Locks that nobody waits for without end: in a child that the daemon forked meanwhile, one may be
//! held for ever.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// The lock, if it can be had for so long.
pub(crate) fn patiently<T>(lock: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let begun = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
