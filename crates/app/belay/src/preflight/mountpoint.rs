//! The mountpoint: guessed, because only the daemon knows its own arguments.

use super::place::{self, Holder};
use belay_supervisor::instances::Instance;
use belay_supervisor::{Result, mounts};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The mountpoint in a daemon's command line: its last argument that names a directory. What is
/// mounted there is not touched, since it may hang. What comes before a path that is not there is
/// none: that path is.
pub fn guess(command: &[OsString]) -> Option<PathBuf> {
    match look(command)? {
        Found::There(path) => Some(path),
        Found::Missing(_) => None,
    }
}

/// The mountpoint in a daemon's command line, if nothing is there: probably one that was mistyped,
/// or is still to be made.
pub fn missing(command: &[OsString]) -> Option<PathBuf> {
    match look(command)? {
        Found::There(_) => None,
        Found::Missing(path) => Some(path),
    }
}

/// What the last argument is that can be a mountpoint.
enum Found {
    There(PathBuf),
    Missing(PathBuf),
}

fn look(command: &[OsString]) -> Option<Found> {
    let mut doubtful = None;
    // What is behind the mountpoint is an option, or its value.
    let mut is_last = true;
    for pair in command.windows(2).rev() {
        let [before, word] = pair else { continue };
        if word.as_bytes().starts_with(b"-") || before == "-o" {
            continue;
        }
        let may_be_value = may_take_value(before);
        let may_be_place = is_path(word) || (is_last && !may_be_value && is_name(word));
        is_last &= may_be_value;
        let path = mounts::resolve_untouched(Path::new(word));
        if mounts::at(&path).is_some_and(|mount| mount.is_fuse()) {
            return Some(Found::There(path));
        }
        // Nothing of FUSE is there, so it can be looked at; it may be a link to the directory.
        match path.canonicalize() {
            Ok(real) if real.is_dir() => return Some(Found::There(real)),
            Ok(_) => continue,
            Err(_) if !may_be_place || path.symlink_metadata().is_ok() => continue,
            Err(_) => {}
        }
        // A file of which an option says that it is to be made is not there either.
        match may_be_value {
            false => return Some(Found::Missing(path)),
            true => doubtful = doubtful.or(Some(Found::Missing(path))),
        }
    }
    doubtful
}

/// Whether that word cannot be anything but a path.
fn is_path(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"/") || word.as_bytes().starts_with(b".")
}

/// Whether that word may be a path from the working directory on, and not a host, an address, or
/// something that is set.
fn is_name(word: &OsStr) -> bool {
    !word.is_empty() && !word.as_bytes().iter().any(|byte| b":=@".contains(byte))
}

/// Whether the next word may belong to this option. It does not to those that all daemons have
/// (`-f`, `-d`, `-s`), nor if this one has its value.
fn may_take_value(word: &OsStr) -> bool {
    match word.as_bytes() {
        [b'-', b'-'] => false,
        [b'-', b'-', name @ ..] => !name.contains(&b'='),
        [b'-', letter] => !b"fds".contains(letter),
        _ => false,
    }
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
    use crate::testing::words;

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
        for line in [
            "bindfs /etc /no/such",
            "bindfs /etc /no/such -o ro",
            "bindfs /etc /no/such -o ro --extpass cat",
            "bindfs /etc /no/such --log /no/log -f",
            "bindfs /etc -f /no/such",
            "bindfs /etc -oro --x=/usr /no/such",
            "bindfs -- /etc /no/such /etc/passwd",
            "sshfs h: -p /no/such",
        ] {
            assert_eq!(missing(&words(line)), Some("/no/such".into()), "{line}");
            assert_eq!(guess(&words(line)), None, "{line}");
        }
        for there in [
            "bindfs /etc /usr",
            "sshfs -f h: /usr -o ro",
            "sshfs -f h: /usr -F /no/such",
            "sshfs -f h: /usr --log /no/such",
            "sshfs -f /no/such /usr -o /no/such",
        ] {
            assert_eq!(missing(&words(there)), None, "{there}");
            assert_eq!(guess(&words(there)), Some("/usr".into()), "{there}");
        }
        for none in ["d", "d -o a=/no/such", "d -f", "d -p 22", "d host:dir", "d --name none -f"] {
            assert_eq!(missing(&words(none)), None, "{none}");
        }
    }

    /// A name is looked for from the working directory on, as the daemon does.
    #[test]
    fn a_relative_mountpoint_that_is_not_there_is_noticed() {
        let here = std::path::absolute("nope").unwrap();
        for line in
            ["bindfs /etc nope", "bindfs /etc nope -o ro", "d -f nope", "d nope", "d -- nope -p 22"]
        {
            assert_eq!(missing(&words(line)), Some(here.clone()), "{line}");
            assert_eq!(guess(&words(line)), None, "{line}");
        }
        // What comes before the last word, belongs to an option, or is no path, is none.
        for there in [
            "s3fs nope /usr",
            "s3fs /usr --name nope",
            "sshfs /usr -p 22",
            "d /usr host:nope",
            "d /usr nope=1",
            "d nope /usr /etc/passwd",
        ] {
            assert_eq!(missing(&words(there)), None, "{there}");
            assert_eq!(guess(&words(there)), Some("/usr".into()), "{there}");
        }
    }
}
