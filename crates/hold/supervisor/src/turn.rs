//! Turns: of those who start a mount at one place, one at a time decides whether that is free.
//!
//! Who starts at another place waits for none of them: a start may take its time, by an op-log that
//! is rolled forward first.

use crate::error::{Error, Result};
use crate::folder::Folder;
use belay_sys::{Lock, lock_range};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::Path;

/// In the state directory: a byte for each place, as far as their hashes differ.
const FILE: &str = "turns";

/// Nobody else of this state directory decides about a place while this is held.
#[derive(Debug)]
pub struct Turn {
    _file: OwnedFd,
}

impl Turn {
    /// The turn at `place`, or `None` if somebody else has it. The state directory is made if it is
    /// not there.
    ///
    /// # Errors
    /// Those of making the state directory, and of open(2) and fcntl(2).
    pub fn take(state_dir: &Path, place: &Path) -> Result<Option<Self>> {
        let state = Folder::make_own(state_dir)?;
        let file = state.open(FILE, OFlags::RDWR | OFlags::CREATE)?;
        // Programs of two versions may hash in two ways: then they do not wait for each other.
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        match lock_range(file.as_fd(), Lock::Exclusive, hasher.finish() >> 2, 1) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(why)
                if matches!(
                    why.kind(),
                    ErrorKind::WouldBlock | ErrorKind::PermissionDenied | ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(why) => {
                let what = state.path().join(FILE).display().to_string();
                Err(Error::system("lock", what, why, ""))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_wait_for_each_other() {
        let state = tempfile::tempdir().expect("tempdir");
        let dir = state.path().join("state");
        let take = |place: &str| Turn::take(&dir, Path::new(place)).expect("turn");
        let first = take("/mnt/a").expect("the first");
        assert!(take("/mnt/a").is_none());
        assert!(take("/mnt/b").is_some());
        drop(first);
        assert!(take("/mnt/a").is_some());
    }
}
