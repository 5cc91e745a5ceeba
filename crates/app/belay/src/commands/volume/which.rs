//! Which mount of a volume is meant.

use crate::cli::state_dir::StateDir;
use anyhow::{Result, bail};
use belay_registry::VolumeName;
use belay_stack::Role;
use belay_supervisor::config::Config;
use belay_supervisor::instances;
use belay_supervisor::mounts;
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
    let name = meant.to_str().and_then(|text| text.parse::<VolumeName>().ok());
    let Some(name) = name.filter(|_| !is_there(meant)) else { return Ok(meant.to_owned()) };
    let instances = instances::list(&state.path()).into_iter();
    let known: Vec<(bool, Config)> =
        instances.filter_map(|instance| Some((instance.alive, instance.config()?))).collect();
    let is_served = |place: &Path| {
        let at = |one: &Config| one.guessed_mountpoint.as_ref().map(|it| PathBuf::from(&it.0));
        known.iter().any(|(alive, one)| *alive && at(one).is_some_and(|it| it == place))
    };
    let mut places: Vec<PathBuf> = known
        .iter()
        .filter_map(|(alive, config)| {
            let (volume, place) = held(config)?;
            // What nobody holds any more may still be in its place, unless another mount is.
            let is_there = *alive || mounts::at(place).is_some() && !is_served(place);
            (*volume.0 == *name.as_str() && is_there).then(|| place.to_owned())
        })
        .collect();
    places.sort();
    places.dedup();
    match &places[..] {
        [place] => Ok(place.clone()),
        [] => bail!(
            "no volume {name} is mounted (state directory {}), and no file here has that name; name its mountpoint, which `belay \
             volume status` shows",
            state.path().display()
        ),
        several => bail!(
            "volume {name} is mounted at several places, name one of them: {}",
            command_line(several.iter().map(|place| place.as_os_str()))
        ),
    }
}

/// Whether anything has that name. Nobody is asked who serves it.
fn is_there(path: &Path) -> bool {
    open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).is_ok()
}
