//! `belay checkpoint`.

use super::mounts;
use super::volume::place_of;
use crate::cli::Mount;
use crate::messages::Out;
use anyhow::{Context, Result, bail};
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::threads;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// A checkpoint that takes longer is not made: the image's disk may be full.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon all of whose threads sleep begins a checkpoint when it is asked for something. The
/// supervisor may wake it only by way of a file that the kernel knows, which there may not be.
const WAKE: Duration = Duration::from_millis(100);

/// Asks the mount for something that changes nothing, again and again. In a thread that nobody
/// waits for: it is asked through the very daemon that may be about to be restarted.
fn wake(mountpoint: PathBuf) {
    let work = move || {
        loop {
            std::thread::sleep(WAKE);
            let _ = rustix::fs::statvfs(&mountpoint);
        }
    };
    if let Err((error, _)) = threads::start("wake", work) {
        tracing::warn!("cannot start a thread: {error}; an idle daemon is not woken");
    }
}

/// Runs it.
pub fn run(options: &Mount) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let place = &status.mountpoint;
    if !instance.alive {
        bail!("{place}: belay gave up on it before; clean up with `umount {place}`");
    }
    if let Some(volume) = place_of(&instance) {
        belay_stack::checkpoint(&volume)
            .with_context(|| format!("{place}: no checkpoint; see `belay volume status`"))?;
        writeln!(Out, "all that was written is on the stores")?;
        return Ok(0);
    }
    wake(place.into());
    match Client::connect(&instance.dir)?.ask(&Ask::Checkpoint, Some(PATIENCE)) {
        Ok(Answer::Safe { epoch }) => {
            writeln!(Out, "epoch {epoch} is on the image")?;
            Ok(0)
        }
        Ok(Answer::Refused { why }) => bail!("{place}: no checkpoint: {why}"),
        Ok(Answer::Ended { code, .. }) => {
            bail!("{place}: belay ended with code {code} before; see what it said")
        }
        Ok(_) => bail!("{place}: the supervisor gave the wrong answer"),
        Err(error) => {
            bail!("{place}: the checkpoint is not known to be safe: {error}; see `belay status`")
        }
    }
}
