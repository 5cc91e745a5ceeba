//! What is built on the machine that loses its power, and who is killed there meanwhile.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use belay_fixtures::Belay;
use belay_workloads::Watch;
use belay_workloads::build::{Build, Source, Stage};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::machine::{Told, tell};
use crate::interrupt::Stop;
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
}

/// Builds, and kills meanwhile and afterwards. A failure is told.
pub fn carry_out(order: &Path, mountpoint: &Path, state_dir: &Path) {
    let done = read(order).and_then(|order| {
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let hunt = scope.spawn(|| hunt(&order, mountpoint, state_dir, &stop));
            let built = build(&order, mountpoint);
            if built.is_err() {
                stop.ask();
            }
            let hunted = hunt.join().unwrap_or_else(|_| anyhow::bail!("a thread has panicked"));
            built.and(hunted)
        })
    });
    if let Err(why) = done {
        tell(&Told::Failed(format!("{why:#}")));
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
        let begin = SystemTime::now();
        build.stage(stage, mountpoint, &order.scratch, &Watch::limit(LIMIT))?;
        // The clock of files may be behind.
        sync(&Build::place(mountpoint, ""), begin - Duration::from_secs(2))?;
        tell(&Told::Built(order.done + number + 1));
    }
    Ok(())
}

/// Makes each file durable that was changed since; the names in a volume are so with the first.
fn sync(folder: &Path, since: SystemTime) -> Result<()> {
    for entry in WalkDir::new(folder) {
        let entry = entry.with_context(|| format!("walking {}", folder.display()))?;
        let what = || format!("syncing {}", entry.path().display());
        // Time of modification may be what an archive says.
        let changed = |entry: &walkdir::DirEntry| {
            let stat = rustix::fs::lstat(entry.path()).with_context(what)?;
            let changed = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
            anyhow::Ok(SystemTime::UNIX_EPOCH + changed + Duration::from_secs(1) >= since)
        };
        if entry.file_type().is_file() && changed(&entry)? {
            File::open(entry.path()).and_then(|file| file.sync_all()).with_context(what)?;
        }
    }
    Ok(())
}

/// Kills processes of the volume until it is to stop.
fn hunt(order: &Order, mountpoint: &Path, state_dir: &Path, stop: &Stop) -> Result<()> {
    let belay = Belay::find()?;
    let plan = Plan {
        seed: order.seed,
        every: order.every,
        start: Duration::ZERO,
        signals: vec![Signal::KILL, Signal::SEGV, Signal::ABORT],
        limit: None,
        progress: None,
    };
    let mut hunter = Hunter::new(&plan);
    while !stop.wait(hunter.pause()) {
        let status = target::patiently(|| belay.status_by(mountpoint, Some(state_dir)))?;
        tell(&Told::Killed(hunter.strike(&status)?));
    }
    Ok(())
}
