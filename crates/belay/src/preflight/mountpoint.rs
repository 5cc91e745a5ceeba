//! The mountpoint: guessed, because only the daemon knows its own arguments.

use belay_supervisor::instances::Instance;
use belay_supervisor::{Error, Result, mounts};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The mountpoint in a daemon's command line: its last argument that names a directory. What is
/// mounted there is not touched, since it may hang.
pub fn guess(command: &[OsString]) -> Option<PathBuf> {
    let words = command.iter().skip(1).rev();
    words.filter(|word| !word.to_string_lossy().starts_with('-')).find_map(|word| {
        let path = mounts::resolve_untouched(Path::new(word));
        if mounts::at(&path).is_some_and(|mount| mount.is_fuse()) {
            return Some(path);
        }
        // Nothing of FUSE is there, so it can be looked at; it may be a link to the directory.
        let real = path.canonicalize().ok()?;
        real.is_dir().then_some(real)
    })
}

/// Refuses a mountpoint that is taken.
///
/// # Errors
/// By whom it is taken, and what to do.
pub fn check(path: &Path, instances: &[Instance]) -> Result<()> {
    let shown = path.display();
    for instance in instances.iter().filter(|instance| instance.alive) {
        let Some(config) = instance.config() else {
            continue;
        };
        if config.guessed_mountpoint.as_ref().is_some_and(|other| other.as_path() == path) {
            return Err(Error::refused(
                shown.to_string(),
                format!("belay process {} holds it already", config.keeper_pid),
                format!("see `belay status {shown}`, or end that with `belay stop {shown}`"),
            ));
        }
    }
    match mounts::at(path) {
        Some(mount) if mount.is_fuse() => Err(Error::refused(
            shown.to_string(),
            format!("it is busy: a {} file system is mounted there", mount.kind),
            format!("unmount it first: fusermount3 -u {shown} (or umount -l {shown}, if it hangs)"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_last_directory_is_the_mountpoint() {
        assert_eq!(guess(&words("sshfs -f host:/x /usr -o ro")), Some("/usr".into()));
        assert_eq!(guess(&words("bindfs /etc /usr")), Some("/usr".into()));
        assert_eq!(guess(&words("/usr")), None);
        assert_eq!(guess(&words("d /no/such/dir")), None);
        check(Path::new("/usr"), &[]).expect("free");
    }
}
