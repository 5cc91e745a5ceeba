//! Threads and processes, where the machine may have none for a moment.

use crate::error::passes;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// How long a thread is waited for.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Starts a thread; one that cannot be had now is tried for again.
///
/// # Errors
/// Why it cannot be had, and what was to be done.
pub fn start<F>(name: &str, work: F) -> Result<(), (io::Error, F)>
where
    F: FnOnce() + Send + 'static,
{
    start_within(PATIENCE, name, work)
}

/// The same for so long: for no time, there is one try, which holds nobody up.
///
/// # Errors
/// Those of [`start`].
pub fn start_within<F>(patience: Duration, name: &str, work: F) -> Result<(), (io::Error, F)>
where
    F: FnOnce() + Send + 'static,
{
    let end = Instant::now() + patience;
    // A thread that does not come to be takes its work along.
    let shared = Arc::new(Mutex::new(Some(work)));
    let take = |from: &Mutex<Option<F>>| from.lock().unwrap_or_else(PoisonError::into_inner).take();
    loop {
        let theirs = Arc::clone(&shared);
        let (held, let_go) = channel::<()>();
        let run = move || {
            if let Some(work) = take(&theirs) {
                work();
            }
            // The C library looks at a thread once more that it has let go, and crashes if that is
            // gone (glibc, bug 19951): so none ends before.
            let _ = let_go.recv();
        };
        match Builder::new().name(name.to_owned()).spawn(run) {
            Ok(thread) => {
                drop(thread);
                drop(held);
                return Ok(());
            }
            Err(error) if passes(&error) && Instant::now() < end => sleep(PAUSE),
            Err(error) => {
                let Some(work) = take(&shared) else { continue };
                return Err((error, work));
            }
        }
    }
}

/// Tries what fails for want of a process, a thread or the like again until it can be had; for no
/// time, there is one try.
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

/// Threads that are waited for with a limit, and are few.
///
/// Only for what a fatal signal ends: a thread that waits otherwise keeps the whole process from
/// ending. That is for a process apart ([`crate::scout`]).
#[derive(Debug, Default)]
pub struct Bounded(AtomicUsize);

impl Bounded {
    /// So many are at work at the most, those given up included.
    const MOST: usize = 4;

    /// None so far.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Has one do `work`, and waits for what it gives for at most `limit`; `None` if that does not
    /// come.
    pub fn within<T: Send + 'static>(
        &'static self,
        limit: Duration,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.0.fetch_add(1, Relaxed) >= Self::MOST {
            self.0.fetch_sub(1, Relaxed);
            return None;
        }
        let (tell, told) = sync_channel(1);
        let counted = move || {
            let done = work();
            self.0.fetch_sub(1, Relaxed);
            let _ = tell.send(done);
        };
        if start_within(Duration::ZERO, name, counted).is_err() {
            self.0.fetch_sub(1, Relaxed);
            return None;
        }
        told.recv_timeout(limit).ok()
    }
}

/// Does `work` in a thread of its own; if none can be had, here.
pub fn beside(name: &str, work: impl FnOnce() + Send + 'static) {
    beside_or(name, work, || ());
}

/// The same for work that waits for what comes after it: `alone` is done before it is done here.
pub fn beside_or(name: &str, work: impl FnOnce() + Send + 'static, alone: impl FnOnce()) {
    if let Err((error, work)) = start(name, work) {
        tracing::warn!("cannot start a thread: {error}");
        alone();
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_let_go_ends_with_its_work() {
        let (tell, told) = sync_channel(1);
        let started = start("short", move || {
            let _ = tell.send(rustix::thread::gettid().as_raw_nonzero());
        });
        assert!(started.is_ok());
        let task = format!("/proc/self/task/{}", told.recv().expect("its number"));
        let end = Instant::now() + PATIENCE;
        while std::path::Path::new(&task).exists() {
            assert!(Instant::now() < end, "it stays");
            sleep(PAUSE);
        }
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_and_they_are_few() {
        static THREADS: Bounded = Bounded::new();
        assert_eq!(THREADS.within(PATIENCE, "quick", || 1), Some(1));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..2 * Bounded::MOST {
            let gate = Arc::clone(&gate);
            let wait = move || gate.lock().map(|gate| gate.recv().is_ok()).is_ok();
            assert_eq!(THREADS.within(PAUSE, "slow", wait), None);
            assert!(THREADS.0.load(Relaxed) <= Bounded::MOST);
        }
        assert_eq!(THREADS.within(PATIENCE, "quick", || 1), None, "no more of them");
        drop(open);
        let end = Instant::now() + PATIENCE;
        while THREADS.within(PATIENCE, "quick", || 1) != Some(1) {
            assert!(Instant::now() < end, "they came back");
            sleep(PAUSE);
        }
    }
}
