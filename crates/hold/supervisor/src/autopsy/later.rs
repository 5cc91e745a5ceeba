//! Backtraces are made when there is time, by a thread beside the supervisor: files have to be read
//! for them, which is done in a process apart. A report is written at once without, and again with.

use super::apart::backtrace;
use crate::folder::Folder;
use crate::process::children_of_thread;
use crate::report::Report;
use crate::threads;
use belay_effects::remains::Remains;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Reports that wait; more get no backtrace.
const WAITING: usize = 16;
/// How long the end of the supervisor waits for those.
const PATIENCE: Duration = Duration::from_secs(5);

/// A report without its backtrace, and where it is to be.
type Job = (Box<Report>, Box<Remains>, Folder);

/// The thread, if there is one.
#[derive(Debug, Default)]
pub struct Backtraces {
    worker: Option<Worker>,
}

#[derive(Debug)]
struct Worker {
    jobs: SyncSender<Job>,
    /// Nothing comes here; it is closed when the thread ends.
    end: Receiver<()>,
    /// Its number, 0 until it has begun.
    thread: Arc<AtomicU32>,
}

impl Backtraces {
    /// Has a report, which is already in `folder`, written again with a backtrace.
    pub fn add(&mut self, report: Report, remains: Remains, folder: Folder) {
        if self.worker.is_none() {
            self.worker = start();
        }
        if let Some(worker) = &self.worker
            && worker.jobs.try_send((Box::new(report), Box::new(remains), folder)).is_err()
        {
            tracing::debug!("too many crashes at once for a backtrace of each");
        }
    }

    /// The processes that work on one: none of the daemon's. To be asked after those of which some
    /// may be one of them.
    pub fn processes(&self) -> Vec<u32> {
        let thread = self.worker.as_ref().map_or(0, |worker| worker.thread.load(Ordering::Acquire));
        if thread == 0 { Vec::new() } else { children_of_thread(std::process::id(), thread) }
    }

    /// Waits until the last is written, but not for long.
    pub fn finish(&mut self) {
        if let Some(Worker { jobs, end, .. }) = self.worker.take() {
            drop(jobs);
            if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("a backtrace takes too long: its report is left without one");
            }
        }
    }
}

fn start() -> Option<Worker> {
    let (jobs, todo) = sync_channel::<Job>(WAITING);
    let (alive, end) = sync_channel::<()>(1);
    let number = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&number);
    let work = move || {
        let _alive = alive;
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        told.store(own.unsigned_abs(), Ordering::Release);
        for (mut report, remains, folder) in todo {
            let Some(frames) = backtrace(&remains) else { continue };
            if let Some(crash) = &mut report.crash {
                crash.backtrace = Some(frames);
            }
            if let Err(error) = report.write(&folder) {
                tracing::debug!("{error}");
            }
        }
    };
    // The next crash tries again: the event loop waits for none.
    match threads::start_within(Duration::ZERO, "backtrace", work) {
        Ok(_) => Some(Worker { jobs, end, thread: number }),
        Err((error, _)) => {
            tracing::debug!("cannot start a thread for backtraces: {error}");
            None
        }
    }
}
