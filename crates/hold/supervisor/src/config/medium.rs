//! A file that is made once, and read from then on: what a daemon shows that works on nothing else.
//! Its names lead to the same files in each life, whatever numbers the daemon gives them, as nobody
//! can move them; but for who replaces the file as a whole, which is looked at before each start.

use crate::look::found::FileStat;
use crate::programs;
use crate::text::OsText;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Such a file, as it was when the mount was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medium {
    path: OsText,
    /// Device, inode number, size, and time of the last change.
    #[serde(rename = "facts")]
    stat: (u64, u64, u64, i64, u32),
}

impl Medium {
    /// The file at `path`.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub fn look(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let found = FileStat::asked(&programs::pin(&path)?)?;
        Ok(Self { path: path.into(), stat: seen(&found) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.path.as_path()
    }

    /// The folder that it is in, held: the daemon may mount on it.
    pub fn folder(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(self.path().parent()?, flags, Mode::empty()).ok()
    }

    /// Whether that is still this file, and as it was.
    pub fn is(&self, found: &FileStat) -> bool {
        seen(found) == self.stat
    }
}

fn seen(stat: &FileStat) -> (u64, u64, u64, i64, u32) {
    let (seconds, nanoseconds) = stat.modified;
    (stat.device, stat.inode, stat.size, seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::{Links, look};
    use crate::scout::Scouts;

    #[test]
    fn another_file_in_its_place_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, "one").unwrap();
        let medium = Medium::look(&path).unwrap();
        let is_same = || {
            let found = look(&Scouts::default(), None, medium.path(), Links::Followed);
            found.there().is_some_and(|there| medium.is(&there.stat))
        };
        assert!(is_same());
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert!(!is_same());
        std::fs::write(&path, "one").unwrap();
        assert!(!is_same());
        std::fs::rename(dir.path().join("old"), &path).unwrap();
        assert!(is_same());
        std::fs::write(&path, "other").unwrap();
        assert!(!is_same());
    }
}
