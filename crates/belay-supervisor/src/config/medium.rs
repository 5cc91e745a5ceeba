//! A file that is made once, and read from then on: what a daemon shows that works on nothing else. Its names lead to the
//! same files in each life, whatever numbers the daemon gives them, as nobody can move them; but for who replaces
//! the file as a whole, which is looked at before each start.

use crate::text::OsText;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Such a file, as it was when the mount was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medium {
    path: OsText,
    /// Device, inode number, size, and time of the last change.
    facts: (u64, u64, u64, i64, u32),
}

impl Medium {
    /// The file at `path`.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub fn look(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let wanted = StatxFlags::BASIC_STATS;
        let found = statx(CWD, &path, AtFlags::STATX_DONT_SYNC, wanted)?;
        let device = (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor);
        let changed = found.stx_mtime;
        let facts = (device, found.stx_ino, found.stx_size, changed.tv_sec, changed.tv_nsec);
        Ok(Self { path: path.into(), facts })
    }

    /// Whether it still is that file, and as it was.
    pub fn is_same(&self) -> bool {
        Self::look(Path::new(&self.path.0)).is_ok_and(|now| now == *self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_in_its_place_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, "one").unwrap();
        let medium = Medium::look(&path).unwrap();
        assert!(medium.is_same());
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert!(!medium.is_same());
        std::fs::write(&path, "one").unwrap();
        assert!(!medium.is_same());
        std::fs::rename(dir.path().join("old"), &path).unwrap();
        assert!(medium.is_same());
        std::fs::write(&path, "other").unwrap();
        assert!(!medium.is_same());
    }
}
