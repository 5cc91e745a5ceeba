//! A worker: a process that carries out batches of operations which it is sent.

use std::io::{BufRead, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
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

/// Arguments of the hidden `worker` command.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// The directory to work in.
    #[arg(long)]
    pub root: PathBuf,
    /// The daemon has inode numbers of its own.
    #[arg(long)]
    pub own_numbers: bool,
    /// Those of directories are made of their paths.
    #[arg(long)]
    pub directories_by_path: bool,
}

/// Serves orders from stdin until it ends.
pub fn serve(args: &WorkerArgs) -> Result<()> {
    let mut executor = Executor::new(&args.root, args.own_numbers)?;
    if args.directories_by_path {
        executor.ignore_numbers_of_directories();
    }
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line.context("reading an order")?)
            .context("understanding an order")?;
        if order.shared {
            executor.forget_shared();
        }
        for op in &order.ops {
            let start = Instant::now();
            let outcome = executor.run(op);
            let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
            serde_json::to_writer(&mut out, &Answer { outcome, micros })
                .context("writing an answer")?;
            out.write_all(b"\n").and_then(|()| out.flush()).context("writing an answer")?;
        }
    }
    Ok(())
}
