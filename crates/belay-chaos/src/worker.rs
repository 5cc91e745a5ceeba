//! A worker: a process that carries out batches of operations which it is sent.

use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::exec::Executor;
use crate::ops::{Op, Outcome};

/// What a worker is sent, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Whether others may have changed what this worker knows of the shared tree.
    pub shared: bool,
    pub ops: Vec<Op>,
}

/// What a worker sends back for each operation, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    pub outcome: Outcome,
    pub micros: u64,
}

/// Keeps the killer away while something is being changed. Two lock files: whoever wants to hold `inner` in whichever
/// way passes through `outer` first, so that a killer that waits at `inner` is not overtaken for ever.
#[derive(Debug)]
pub struct Gate {
    outer: File,
    inner: File,
}

impl Gate {
    /// Opens (or makes) the lock files in a directory.
    pub fn open(dir: &Path) -> Result<Self> {
        let open = |name: &str| {
            let path = dir.join(name);
            let file = File::options().create(true).truncate(false).write(true).open(&path);
            file.with_context(|| format!("opening {}", path.display()))
        };
        Ok(Self { outer: open("gate.outer")?, inner: open("gate.inner")? })
    }

    /// Runs something while no killer is inside.
    pub fn shared<T>(&self, what: impl FnOnce() -> T) -> Result<T> {
        self.hold(FlockOperation::LockShared, what)
    }

    /// Runs something while nobody else is inside.
    pub fn alone<T>(&self, what: impl FnOnce() -> T) -> Result<T> {
        self.hold(FlockOperation::LockExclusive, what)
    }

    fn hold<T>(&self, how: FlockOperation, what: impl FnOnce() -> T) -> Result<T> {
        flock(&self.outer, FlockOperation::LockExclusive).context("waiting at the outer gate")?;
        flock(&self.inner, how).context("waiting at the inner gate")?;
        flock(&self.outer, FlockOperation::Unlock).context("leaving the outer gate")?;
        let value = what();
        flock(&self.inner, FlockOperation::Unlock).context("leaving the inner gate")?;
        Ok(value)
    }
}

/// Arguments of the hidden `worker` command.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// The directory to work in.
    #[arg(long)]
    pub root: PathBuf,
    /// Directory of the gate's lock files.
    #[arg(long)]
    pub gate: Option<PathBuf>,
    /// The daemon has inode numbers of its own.
    #[arg(long)]
    pub own_numbers: bool,
}

/// Serves orders from stdin until it ends.
pub fn serve(args: &WorkerArgs) -> Result<()> {
    let gate = args.gate.as_deref().map(Gate::open).transpose()?;
    let mut executor = Executor::new(&args.root, args.own_numbers)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line.context("reading an order")?)
            .context("understanding an order")?;
        if order.shared {
            executor.forget_shared();
        }
        for op in &order.ops {
            let start = Instant::now();
            let outcome = match &gate {
                Some(gate) if op.mutates() => gate.shared(|| executor.run(op))?,
                _ => executor.run(op),
            };
            let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
            serde_json::to_writer(&mut out, &Answer { outcome, micros })
                .context("writing an answer")?;
            out.write_all(b"\n").and_then(|()| out.flush()).context("writing an answer")?;
        }
    }
    Ok(())
}
