//! The mountpoint: guessed, because only the daemon knows its own arguments.

use super::place::{self, Holder};
use belay_supervisor::instances::Instance;
use belay_supervisor::{Result, mounts};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
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

/// The last argument, if it is the path of nothing: probably a mountpoint that was mistyped, or is still to be made. What may
/// hang is not touched.
pub fn missing(command: &[OsString]) -> Option<PathBuf> {
    let word = command.get(1..)?.last()?;
    let is_path = word.as_bytes().starts_with(b"/") || word.as_bytes().starts_with(b".");
    let path = mounts::resolve_untouched(Path::new(word));
    let is_fuse = || mounts::at(&path).is_some_and(|mount| mount.is_fuse());
    (is_path && !is_fuse() && std::fs::symlink_metadata(&path).is_err()).then_some(path)
}

/// Refuses a mountpoint that is taken.
///
/// # Errors
/// By whom it is taken, and what to do.
pub fn check(path: &Path, instances: &[Instance]) -> Result<()> {
    match place::holder(path, instances) {
        Some(Holder::Stays(why)) => Err(why),
        // `belay run` waits for it.
        Some(Holder::Ends(_)) | None => Ok(()),
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

    #[test]
    fn a_mountpoint_that_is_not_there_is_noticed() {
        assert_eq!(missing(&words("bindfs /etc /no/such")), Some("/no/such".into()));
        for there in ["bindfs /etc /usr", "sshfs -f h: /usr -o ro", "d", "d -o a=/no/such"] {
            assert_eq!(missing(&words(there)), None, "{there}");
        }
    }
}
