//! Client threads: runs one batch of an operation on one or several threads and times it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// One client of a mount, which repeats one operation.
///
/// Only [`Worker::run`] is timed. A worker belongs to one thread at a time.
pub trait Worker: Send {
    /// Brings the tree into the state that `run(count)` expects. Not timed.
    fn prepare(&mut self, count: u64) -> Result<()> {
        let _ = count;
        Ok(())
    }

    /// Does the operation `count` times. Timed.
    fn run(&mut self, count: u64) -> Result<()>;

    /// Undoes what `run(count)` left. Not timed.
    fn finish(&mut self, count: u64) -> Result<()> {
        let _ = count;
        Ok(())
    }
}

/// Runs one batch: each worker, on a thread of its own, does `count` operations. Returns the time
/// from the first worker's start to the last one's end.
///
/// A single worker runs on the calling thread. Threads inherit the caller's CPU placement.
pub fn sample(workers: &mut [Box<dyn Worker>], count: u64) -> Result<Duration> {
    if let [worker] = workers {
        worker.prepare(count)?;
        let start = Instant::now();
        worker.run(count)?;
        let elapsed = start.elapsed();
        worker.finish(count)?;
        return Ok(elapsed);
    }
    let barrier = Barrier::new(workers.len());
    let failed = AtomicBool::new(false);
    let spans: Vec<Result<(Instant, Instant)>> = std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .iter_mut()
            .map(|w| scope.spawn(|| one_of_many(w.as_mut(), count, &barrier, &failed)))
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().unwrap_or_else(|_| Err(anyhow!("a client thread panicked"))))
            .collect()
    });
    let spans: Vec<(Instant, Instant)> = spans.into_iter().collect::<Result<_>>()?;
    let start = spans.iter().map(|s| s.0).min().context("a batch needs at least one worker")?;
    let end = spans.iter().map(|s| s.1).max().context("a batch needs at least one worker")?;
    Ok(end - start)
}

/// Every thread passes both barriers whatever happens, so that a failure of one never leaves the
/// others waiting.
fn one_of_many(
    worker: &mut dyn Worker,
    count: u64,
    barrier: &Barrier,
    failed: &AtomicBool,
) -> Result<(Instant, Instant)> {
    let prepared = worker.prepare(count);
    if prepared.is_err() {
        failed.store(true, Ordering::SeqCst);
    }
    barrier.wait();
    let start = Instant::now();
    let ran = if failed.load(Ordering::SeqCst) { Ok(()) } else { worker.run(count) };
    let end = Instant::now();
    barrier.wait();
    prepared?;
    ran?;
    worker.finish(count)?;
    Ok((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sleeper {
        done: u64,
        fail: bool,
    }

    impl Worker for Sleeper {
        fn prepare(&mut self, _count: u64) -> Result<()> {
            anyhow::ensure!(!self.fail, "told to fail");
            Ok(())
        }

        fn run(&mut self, count: u64) -> Result<()> {
            std::thread::sleep(Duration::from_millis(5));
            self.done += count;
            Ok(())
        }
    }

    #[test]
    fn one_and_four_workers_run_their_batches() -> Result<()> {
        for threads in [1, 4] {
            let mut workers: Vec<Box<dyn Worker>> = (0..threads)
                .map(|_| Box::new(Sleeper { done: 0, fail: false }) as Box<dyn Worker>)
                .collect();
            assert!(sample(&mut workers, 3)? >= Duration::from_millis(5));
        }
        Ok(())
    }

    #[test]
    fn a_failing_worker_fails_the_batch_and_blocks_nobody() {
        let mut workers: Vec<Box<dyn Worker>> = (0..4)
            .map(|i| Box::new(Sleeper { done: 0, fail: i == 2 }) as Box<dyn Worker>)
            .collect();
        let error = sample(&mut workers, 1).expect_err("one worker fails");
        assert_eq!(error.to_string(), "told to fail");
    }
}
