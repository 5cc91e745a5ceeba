//! Threads and processes, where the machine may have none for a moment.

use crate::error::passes;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How long a thread is waited for.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Starts a thread; one that cannot be had now is tried for again.
///
/// # Errors
/// Why it cannot be had, and what was to be done.
pub fn start<F>(name: &str, work: F) -> Result<JoinHandle<()>, (io::Error, F)>
where
    F: FnOnce() + Send + 'static,
{
    start_within(PATIENCE, name, work)
}

/// The same for so long: for no time, there is one try, which holds nobody up.
///
/// # Errors
/// Those of [`start`].
pub fn start_within<F>(
    patience: Duration,
    name: &str,
    work: F,
) -> Result<JoinHandle<()>, (io::Error, F)>
where
    F: FnOnce() + Send + 'static,
{
    let end = Instant::now() + patience;
    // A thread that does not come to be takes its work along.
    let shared = Arc::new(Mutex::new(Some(work)));
    let take = |from: &Mutex<Option<F>>| from.lock().unwrap_or_else(PoisonError::into_inner).take();
    loop {
        let theirs = Arc::clone(&shared);
        let run = move || {
            if let Some(work) = take(&theirs) {
                work();
            }
        };
        match Builder::new().name(name.to_owned()).spawn(run) {
            Ok(thread) => return Ok(thread),
            Err(error) if passes(&error) && Instant::now() < end => sleep(PAUSE),
            Err(error) => {
                let Some(work) = take(&shared) else { continue };
                return Err((error, work));
            }
        }
    }
}

/// Tries what fails for want of a process, a thread or the like again until it can be had; for no time, there is one try.
///
/// # Errors
/// Why it cannot be had, or what else keeps it from being done.
pub fn patiently<T>(patience: Duration, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    let mut told = patience.is_zero();
    loop {
        match act() {
            Err(error) if passes(&error) && begin.elapsed() < patience => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("{error}: waiting until it can be");
                }
                sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Does `work` in a thread of its own; if none can be had, here.
pub fn beside(name: &str, work: impl FnOnce() + Send + 'static) {
    if let Err((error, work)) = start(name, work) {
        tracing::warn!("no thread is to be had: {error}");
        work();
    }
}
