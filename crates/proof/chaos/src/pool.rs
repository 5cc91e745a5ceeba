//! The worker processes on one root.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use belay_fixtures::Fixture;
use belay_fixtures::process::Process;

use crate::ops::{Batch, Op};
use crate::worker::{Answer, Order};

/// Workers on one root.
pub struct Pool {
    name: &'static str,
    workers: Vec<Worker>,
    limit: Duration,
    /// Operations done, for the live display and the killer.
    done: Arc<AtomicU64>,
}

struct Worker {
    process: Process,
    orders: ChildStdin,
    answers: Receiver<Answer>,
}

impl Pool {
    /// Starts so many workers on `fixture`. An operation that takes longer than `limit` counts as
    /// hanging.
    pub fn start(
        name: &'static str,
        fixture: &Fixture,
        count: usize,
        limit: Duration,
    ) -> Result<Self> {
        let done = Arc::new(AtomicU64::new(0));
        let workers = (0..count)
            .map(|_| Worker::start(fixture, Arc::clone(&done)))
            .collect::<Result<_>>()
            .with_context(|| format!("starting the workers on {name}"))?;
        Ok(Self { name, workers, limit, done })
    }

    /// A counter that grows with every operation done.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.done)
    }

    /// Hands out a batch without waiting for it.
    pub fn order(&mut self, batch: &Batch, shared: bool) -> Result<()> {
        let worker = self.workers.get_mut(batch.worker).context("no such worker")?;
        let order = Order { shared, ops: batch.ops.clone() };
        let mut line = serde_json::to_vec(&order).context("encoding an order")?;
        line.push(b'\n');
        let sent = worker.orders.write_all(&line);
        sent.with_context(|| format!("ordering worker {} on {}", batch.worker, self.name))
    }

    /// The answer to the next operation of a worker, which is `op`.
    pub fn answer(&mut self, index: usize, op: &Op) -> Result<Answer> {
        let worker = self.workers.get_mut(index).context("no such worker")?;
        match worker.answers.recv_timeout(self.limit) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "worker {index} on {} has been in {op:?} for {:?}: it hangs",
                    self.name,
                    self.limit
                )
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = worker.process.wait(Duration::from_secs(5))?;
                let status = status.map_or_else(|| "without ending".to_owned(), |s| s.to_string());
                bail!("worker {index} on {} died ({status}) in {op:?}", self.name)
            }
        }
    }
}

impl Worker {
    fn start(fixture: &Fixture, done: Arc<AtomicU64>) -> Result<Self> {
        let mut command =
            Command::new(std::env::current_exe().context("finding this program's own path")?);
        command.arg("worker").arg("--root").arg(fixture.root());
        if fixture.kind().has_own_numbers() {
            command.arg("--own-numbers");
        }
        if fixture.kind().numbers_directories_by_path() {
            command.arg("--directories-by-path");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is the soak's business; a worker ends with its stdin.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().context("starting a worker")?;
        let mut process = Process::adopt(child, "worker");
        let orders = process.child().stdin.take().context("a worker has no stdin")?;
        let output = process.child().stdout.take().context("a worker has no stdout")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Some(answer) = line.ok().and_then(|line| serde_json::from_str(&line).ok())
                else {
                    return;
                };
                done.fetch_add(1, Ordering::Relaxed);
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, orders, answers })
    }
}
