//! What a daemon stores to under the policy `buffer`, and whether it has.

use crate::look::{FileStat, Found};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde::{Deserialize, Serialize};

/// What tells a file from another, and from itself as it was before it was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What is known of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// Nothing: it could not be looked at, or not without asking the daemon.
    #[default]
    Unknown,
    /// It was not there.
    Absent,
    /// It was like this.
    There(Mark),
}

impl Seen {
    /// Of what was found there.
    pub(crate) fn of(found: &Found) -> Self {
        match found {
            Found::There(there) => Self::There(Mark::of(&there.stat)),
            _ if found.is_absent() => Self::Absent,
            _ => Self::Unknown,
        }
    }

    /// Whether it has surely changed since it was like `before`.
    pub(crate) fn has_changed_since(self, before: Self) -> bool {
        self != before && self != Self::Unknown && before != Self::Unknown
    }
}

impl Mark {
    fn of(stat: &FileStat) -> Self {
        let time = |(seconds, nanoseconds): (i64, u32)| (seconds, nanoseconds.into());
        let FileStat { device, inode, size, .. } = *stat;
        Self { device, inode, size, modified: time(stat.modified), changed: time(stat.changed) }
    }
}

/// The folders of what the daemon stores to, as far as they could be held.
#[derive(Debug, Default)]
pub(crate) struct Folders(Vec<Option<OwnedFd>>);

impl Folders {
    /// These, in the order of the stores.
    pub(crate) fn new(folders: Vec<Option<OwnedFd>>) -> Self {
        Self(folders)
    }

    /// Whether they were looked for.
    pub(crate) fn are_held(&self) -> bool {
        !self.0.is_empty()
    }

    /// That of the store of this number, if it could be held.
    pub(crate) fn of(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.0.get(number).and_then(Option::as_ref).map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{Links, look};
    use crate::scout::Scouts;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn what_could_not_be_seen_is_not_taken_for_stored() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("store");
        let looping = dir.path().join("link");
        symlink(&looping, &looping).expect("link");
        let at = |path: &Path| Seen::of(&look(&Scouts::default(), None, path, Links::Followed));
        let unknown = at(&looping);
        assert_eq!(unknown, Seen::Unknown);
        assert!(!path.exists()); // the kernel remembers that
        let absent = at(&path);
        assert_eq!(absent, Seen::Absent);
        fs::write(&path, "text").expect("write");
        let there = at(&path);
        assert!(matches!(there, Seen::There(_)));
        assert!(there.has_changed_since(absent) && absent.has_changed_since(there));
        for seen in [unknown, absent, there] {
            assert!(!seen.has_changed_since(seen));
            assert!(!seen.has_changed_since(unknown) && !unknown.has_changed_since(seen));
            // Not lost between two supervisors.
            let json = serde_json::to_string(&seen).expect("json");
            assert_eq!(serde_json::from_str::<Seen>(&json).expect("json"), seen);
        }
    }
}
