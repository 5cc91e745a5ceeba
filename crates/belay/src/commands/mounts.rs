//! Finding held mounts by their mountpoint, without touching these.

use crate::cli::StateDir;
use anyhow::{Result, anyhow};
use belay_supervisor::instances::{self, Instance};
use belay_supervisor::mounts::resolve_untouched;
use belay_supervisor::protocol::{Answer, Ask, Client};
use belay_supervisor::status::Status;
use std::path::Path;
use std::time::Duration;

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
    // Once more if the supervisor dies while it is asked.
    (0..3).find_map(|_| {
        match Client::connect(&instance.dir).ok()?.ask(&Ask::Status, Some(PATIENCE)) {
            Ok(Answer::Status(status)) => Some(*status),
            _ => None,
        }
    })
}

/// All mounts, with their folders.
pub fn all(state: &StateDir) -> Vec<(Instance, Status)> {
    let instances = instances::list(&state.path());
    instances.into_iter().filter_map(|i| status_of(&i).map(|status| (i, status))).collect()
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
    let mut found: Vec<_> = all(state)
        .into_iter()
        .filter(|(_, status)| {
            let place = Path::new(&status.mountpoint);
            place == wanted || linked.as_deref() == Some(place)
        })
        .collect();
    // One that lives says more than one that gave up there before.
    found.sort_by_key(|(instance, _)| instance.alive);
    found.pop().ok_or_else(|| {
        anyhow!(
            "{}: belay holds no mount there (state directory {}); see `belay status` for all mounts",
            wanted.display(),
            state.path().display()
        )
    })
}
