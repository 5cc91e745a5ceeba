//! Which mount of a volume is meant.

use crate::cli::state_dir::StateDir;
use anyhow::{Result, bail};
use belay_registry::VolumeName;
use belay_stack::Role;
use belay_supervisor::config::Config;
use belay_supervisor::instances;
use belay_supervisor::mounts::is_served;
use belay_supervisor::orphans;
use belay_supervisor::text::{OsText, command_line};
use rustix::fs::{Mode, OFlags, open};
use std::path::{Path, PathBuf};

/// The volume that is held by that configuration, and where it is mounted; `None` if it is no
/// volume.
pub fn held(config: &Config) -> Option<(&OsText, &Path)> {
    let [_, module, name, .., mountpoint] = &config.command[..] else { return None };
    let is_module = *module.0 == *format!("volume-{}", Role::Namespace);
    is_module.then_some((name, Path::new(&mountpoint.0)))
}

/// The mountpoint that is meant by a path, or by the name of a volume that is mounted once. A path
/// that is there is one.
///
/// # Errors
/// If it is a name, and the volume is mounted nowhere or at several places.
pub fn mountpoint(state: &StateDir, meant: &Path) -> Result<PathBuf> {
    match (named(state, meant)?, name(meant)) {
        (Some(place), _) => Ok(place),
        (None, Some(name)) if !is_there(meant) => bail!(
            "no volume {name} is mounted (state directory {}), and no file here has that name; `belay volume status` shows what is \
             mounted",
            state.path().display()
        ),
        (None, _) => Ok(meant.to_owned()),
    }
}

/// Where the volume with that name is mounted; `None` if it is no such name, or a path that is
/// there, or such a volume is mounted nowhere.
///
/// # Errors
/// If it is mounted at several places.
pub fn named(state: &StateDir, meant: &Path) -> Result<Option<PathBuf>> {
    let Some(name) = name(meant) else { return Ok(None) };
    let mut places = places(state, &name);
    // Looked for last: most words are no names of volumes.
    if places.is_empty() || is_there(meant) {
        return Ok(None);
    }
    if places.len() > 1 {
        bail!("volume {name} is mounted at several places, name one of them: {}", listed(&places));
    }
    Ok(places.pop())
}

/// What is to be said of the volume with that name where nothing is mounted at such a path: a part
/// of a sentence, or nothing if it is no such name.
pub fn beside(state: &StateDir, meant: &Path) -> String {
    let Some(name) = name(meant) else { return String::new() };
    match &places(state, &name)[..] {
        [] => ", and no volume of that name is mounted".to_owned(),
        // Named by a path that is there.
        places => format!(", and the volume {name} is mounted elsewhere ({})", listed(places)),
    }
}

/// Where the volume is mounted.
fn places(state: &StateDir, name: &VolumeName) -> Vec<PathBuf> {
    let instances = instances::list(&state.path()).into_iter();
    let mut places: Vec<PathBuf> = instances
        .filter_map(|instance| {
            let config = instance.config()?;
            let (volume, place) = held(&config)?;
            let place = place.to_owned();
            if *volume.0 != *name.as_str() {
                return None;
            }
            // What nobody holds any more may still be in its place, or anything else may be.
            let meant = [place.clone()];
            let is_left = || orphans::of(&instance.dir, Some(&meant)).is_some();
            (instance.alive || is_left()).then_some(place)
        })
        .collect();
    places.sort();
    places.dedup();
    places
}

fn listed(places: &[PathBuf]) -> String {
    command_line(places.iter().map(|place| place.as_os_str()))
}

/// The name that a volume could have.
fn name(meant: &Path) -> Option<VolumeName> {
    meant.to_str()?.parse().ok()
}

/// Whether anything has that name. No FUSE daemon is asked, as it may hang: what only one of them
/// can tell is taken for not there.
fn is_there(path: &Path) -> bool {
    if is_served(path) {
        return false;
    }
    open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).is_ok()
}
