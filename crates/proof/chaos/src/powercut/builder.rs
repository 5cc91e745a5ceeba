//! What is built on the machine that loses its power, and who is killed there meanwhile.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use belay_fixtures::Belay;
use belay_workloads::Watch;
use belay_workloads::build::{Build, Source, Stage};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::machine::{Told, tell};
use crate::killer::Plan;
use crate::target;
use crate::volume::Hunter;

/// A stage takes seconds; beyond this it hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Sources.
    pub archive: PathBuf,
    /// Of `make`.
    pub jobs: u8,
    /// What is still to be done, in this order.
    pub stages: Vec<Stage>,
    /// How many are done already.
    pub done: usize,
    /// Mean time between two kills of single processes.
    pub every: Duration,
    /// Of the kills.
    pub seed: u64,
    /// For what the programs say.
    pub scratch: PathBuf,
    /// Stages are said to be durable, and nothing was synced: to see whether that is noticed.
    pub lies: bool,
}

/// Builds, and kills meanwhile and afterwards, until the machine's end. What fails is told at once.
pub fn carry_out(order: &Path, mountpoint: &Path, state_dir: &Path) {
    let order = match read(order) {
        Ok(order) => order,
        Err(why) => return tell(&Told::Failed(format!("{why:#}"))),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| told("killing", hunt(&order, mountpoint, state_dir)));
        told("building", build(&order, mountpoint));
    });
}

fn told(what: &str, done: Result<()>) {
    if let Err(why) = done {
        tell(&Told::Failed(format!("{what}: {why:#}")));
    }
}

fn read(order: &Path) -> Result<Order> {
    let text = std::fs::read(order).with_context(|| format!("reading {}", order.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", order.display()))
}

fn build(order: &Order, mountpoint: &Path) -> Result<()> {
    let build = Build::new(Source::in_archive(&order.archive), order.jobs);
    build.setup(mountpoint)?;
    for (number, stage) in order.stages.iter().enumerate() {
        build.stage(stage, mountpoint, &order.scratch, &Watch::limit(LIMIT))?;
        if !order.lies {
            sync(&Build::place(mountpoint, ""))?;
        }
        tell(&Told::Built(order.done + number + 1));
    }
    Ok(())
}

/// Makes each file durable; the names in a volume are so with the first.
fn sync(folder: &Path) -> Result<()> {
    for entry in WalkDir::new(folder) {
        let entry = entry.with_context(|| format!("walking {}", folder.display()))?;
        if entry.file_type().is_file() {
            let synced = File::open(entry.path()).and_then(|file| file.sync_all());
            synced.with_context(|| format!("syncing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Kills processes of the volume. The signals are such as none of them survives.
fn hunt(order: &Order, mountpoint: &Path, state_dir: &Path) -> Result<()> {
    let belay = Belay::find()?;
    let plan = Plan {
        seed: order.seed,
        every: order.every,
        start: Duration::ZERO,
        signals: vec![Signal::KILL, Signal::ABORT],
        limit: None,
        progress: None,
    };
    let mut hunter = Hunter::new(&plan);
    loop {
        std::thread::sleep(hunter.pause());
        let status = target::patiently(|| belay.status_by(mountpoint, Some(state_dir)))?;
        tell(&Told::Killed(hunter.strike(&status)?));
    }
}
