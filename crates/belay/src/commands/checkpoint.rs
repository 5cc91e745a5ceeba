//! `belay checkpoint`.

use super::mounts;
use crate::cli::Mount;
use anyhow::{Result, bail};
use belay_supervisor::protocol::{Answer, Ask, Client};
use std::time::Duration;

/// A checkpoint that takes longer is not made: the image's disk may be full.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs it.
pub fn run(options: &Mount) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let place = &status.mountpoint;
    if !instance.alive {
        bail!("{place}: belay gave up on it before; clean up with `umount {place}`");
    }
    match Client::connect(&instance.dir)?.ask(&Ask::Checkpoint, Some(PATIENCE)) {
        Ok(Answer::Safe { epoch }) => {
            println!("epoch {epoch} is on the image");
            Ok(0)
        }
        Ok(Answer::Refused { why }) => bail!("{place}: no checkpoint: {why}"),
        Ok(Answer::Ended { code }) => {
            bail!("{place}: belay ended with code {code} before; see what it said")
        }
        Ok(_) => bail!("{place}: the supervisor gave the wrong answer"),
        Err(error) => {
            bail!("{place}: the checkpoint is not known to be safe: {error}; see `belay status`")
        }
    }
}
