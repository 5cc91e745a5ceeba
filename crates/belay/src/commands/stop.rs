//! `belay stop`.

use super::mounts;
use crate::cli::Mount;
use anyhow::{Result, bail};
use belay_supervisor::instances::is_locked;
use belay_supervisor::protocol::{Answer, Ask, Client};
use std::time::{Duration, Instant};

/// A daemon gets 10 seconds to unmount, then it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs it.
pub fn run(options: &Mount) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let place = &status.mountpoint;
    if !instance.alive {
        bail!("{place}: belay gave up on it before; clean up with `umount {place}`");
    }
    let answer = Client::connect(&instance.dir)?.ask(&Ask::Stop, Some(PATIENCE));
    match answer {
        Ok(Answer::Refused { why }) => bail!("{place}: cannot stop: {why}"),
        Ok(_) => {}
        // A supervisor that died of it is replaced by one that goes on; wait for the end below.
        Err(error) => tracing::debug!("{error}"),
    }
    let end = Instant::now() + PATIENCE;
    while is_locked(&instance.dir) {
        if Instant::now() > end {
            bail!(
                "{place}: it does not end; try again for force, or kill supervisor {} and keeper {}",
                status.supervisor.pid,
                status.keeper.pid
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(0)
}
