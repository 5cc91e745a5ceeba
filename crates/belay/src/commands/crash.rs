//! `belay crash` and `belay restart`: deaths on purpose.

use super::mounts::{self, status_of};
use crate::cli::{Crash, Mount};
use crate::messages::say;
use anyhow::{Result, bail};
use belay_supervisor::instances::Instance;
use belay_supervisor::process::signal_name;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::status::State;
use std::time::{Duration, Instant};

/// A recovery that takes longer has failed, or the signal killed nobody.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `belay crash`.
pub fn run(options: &Crash) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let place = &status.mountpoint;
    let mut blackouts = Vec::new();
    let mut next = Instant::now();
    for number in 1..=options.count {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next = (next + options.every).max(Instant::now());
        let ask = Ask::Crash { signal: options.signal };
        let (generation, blackout) = strike(&instance, place, &ask)?;
        blackouts.push(blackout);
        println!(
            "{number}/{}: {}, generation {generation} serves, blackout {blackout} us",
            options.count,
            signal_name(options.signal)
        );
    }
    blackouts.sort_unstable();
    if let (true, Some(max)) = (blackouts.len() > 1, blackouts.last()) {
        let median = blackouts.get(blackouts.len() / 2).unwrap_or(max);
        println!("{} crashes: blackout median {median} us, max {max} us", blackouts.len());
    }
    Ok(0)
}

/// Runs `belay restart`.
pub fn restart(options: &Mount) -> Result<i32> {
    let (instance, status) = mounts::one(&options.state, &options.mount)?;
    let (generation, blackout) = strike(&instance, &status.mountpoint, &Ask::Restart)?;
    println!("generation {generation} serves, blackout {blackout} us");
    Ok(0)
}

/// Asks for one death and waits for the recovery; gives the new generation and its blackout.
fn strike(instance: &Instance, place: &str, ask: &Ask) -> Result<(u32, u64)> {
    let end = Instant::now() + PATIENCE;
    // It may just be starting, or recovering from something else.
    let before = loop {
        let Some(status) = status_of(instance) else {
            bail!("{place}: belay does not hold it any more; see `belay status`");
        };
        match status.state {
            State::Serving => break status,
            State::Stopping => bail!("{place}: it is being unmounted"),
            State::GaveUp => bail!(
                "{place}: belay has given it up; clean up with `umount {place}`, then start it again"
            ),
            _ if Instant::now() > end => {
                bail!("{place}: still {} after a minute; see `belay status`", status.state.name())
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    match Client::connect(&instance.dir)?.ask(ask, Some(PATIENCE)) {
        Ok(Answer::Recovered { generation, blackout_us }) => return Ok((generation, blackout_us)),
        Ok(Answer::Ended { code }) => {
            bail!(
                "{place}: belay ended with code {code} instead of a recovery: it was unmounted, or gave up (`belay status` \
                 tells)"
            )
        }
        Ok(Answer::Refused { why }) => bail!("{place}: {why}"),
        Ok(Answer::Status(_) | Answer::Safe { .. }) => {
            bail!("{place}: the supervisor gave the wrong answer")
        }
        // The supervisor itself may have died: its successor knows.
        Err(error) => say(&format!("belay: {error}\n")),
    }
    while Instant::now() < end {
        if let Some(status) = status_of(instance)
            && status.state == State::Serving
            && status.generation > before.generation
        {
            return Ok((status.generation, status.blackout_us.last));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!(
        "{place}: no recovery within a minute; did the signal kill the daemon? see `belay status`"
    )
}
