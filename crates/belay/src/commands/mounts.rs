//! Finding held mounts by their mountpoint, without touching these.

use crate::cli::StateDir;
use anyhow::{Result, anyhow};
use belay_supervisor::instances::{self, Instance};
use belay_supervisor::mounts::resolve_untouched;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::status::Status;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A supervisor that is being replaced answers within this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status of a folder's mount, from its supervisor or, if it gave up, from what it left.
pub fn status_of(instance: &Instance) -> Option<Status> {
    if !instance.alive {
        let status = instance.last_status()?;
        // It matters as long as the mount is still to be cleaned up.
        let there = belay_supervisor::mounts::at(Path::new(&status.mountpoint));
        return there.is_some_and(|mount| mount.is_fuse()).then_some(status);
    }
    let end = Instant::now() + PATIENCE;
    // Once more if the supervisor dies while it is asked.
    for _ in 0..3 {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        match Client::connect(&instance.dir).ok()?.ask(&Ask::Status, Some(rest)) {
            Ok(Answer::Status(status)) => return Some(*status),
            _ => continue,
        }
    }
    None
}

/// The status of each folder's mount, as they come: all are asked at once, since one whose supervisor is stuck must not
/// hold up what is said of the others.
fn ask(state: &StateDir) -> impl Iterator<Item = (Instance, Option<Status>)> + use<> {
    let (answers, arrived) = mpsc::channel();
    for instance in instances::list(&state.path()) {
        let answers = answers.clone();
        std::thread::spawn(move || {
            let status = status_of(&instance);
            // Whoever has what it wanted listens no more.
            let _ = answers.send((instance, status));
        });
    }
    arrived.into_iter()
}

/// All mounts, with their folders. Of those whose supervisor does not answer it is said that it does not.
pub fn all(state: &StateDir) -> Vec<(Instance, Status)> {
    let mut found = Vec::new();
    for (instance, status) in ask(state) {
        match status {
            Some(status) => found.push((instance, status)),
            None if is_silent(&instance) => tracing::warn!("{}", silence(&[instance])),
            None => {}
        }
    }
    found.sort_by(|a, b| a.0.dir.cmp(&b.0.dir));
    found
}

/// Whether somebody is there who should have answered.
fn is_silent(instance: &Instance) -> bool {
    instance.alive && instances::is_locked(&instance.dir)
}

fn silence(silent: &[Instance]) -> String {
    let names: Vec<_> = silent.iter().map(|instance| instance.dir.display().to_string()).collect();
    format!(
        "no answer within {} s from the supervisor of {}; is it stopped (`ps -o pid,stat,args -C belay`)?",
        PATIENCE.as_secs(),
        names.join(", ")
    )
}

/// The mount at `path`.
///
/// # Errors
/// If belay holds none there.
pub fn one(state: &StateDir, path: &Path) -> Result<(Instance, Status)> {
    let wanted = resolve_untouched(path);
    // A link to the mountpoint is followed by its text alone.
    let linked = std::fs::read_link(&wanted).ok().map(|to| match wanted.parent() {
        Some(parent) => resolve_untouched(&parent.join(to)),
        None => to,
    });
    let (mut gave_up, mut silent) = (None, Vec::new());
    for (instance, status) in ask(state) {
        match status {
            Some(status) => {
                let place = Path::new(&status.mountpoint);
                if place != wanted && linked.as_deref() != Some(place) {
                    continue;
                }
                // One that lives says more than one that gave up there before.
                if instance.alive {
                    return Ok((instance, status));
                }
                gave_up = Some((instance, status));
            }
            None if is_silent(&instance) => silent.push(instance),
            None => {}
        }
    }
    gave_up.ok_or_else(|| {
        let told = if silent.is_empty() { String::new() } else { format!("; {}", silence(&silent)) };
        anyhow!(
            "{}: belay holds no mount there (state directory {}); see `belay status` for all mounts{told}",
            wanted.display(),
            state.path().display()
        )
    })
}
