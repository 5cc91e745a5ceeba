//! What a tree looks like, for the study: all of it but times, save the one that an operation sets.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use walkdir::WalkDir;

use crate::tree::Tree;

/// What is looked at besides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Inode numbers tell which names are one file.
    pub links: bool,
    /// Whether `file` has this time, in seconds.
    pub time: Option<i64>,
    /// What the whole file system has left: on an image, a loss that no name tells of.
    pub free: bool,
}

/// What a tree does not tell of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inode {
    links: u32,
    owner: (u32, u32),
}

/// A tree at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    tree: Tree,
    inodes: BTreeMap<String, Inode>,
    has_time: Option<bool>,
    /// Blocks and inodes.
    free: Option<(u64, u64)>,
}

impl Snapshot {
    /// Looks.
    ///
    /// # Errors
    /// When anything in it cannot be read.
    pub fn read(dir: &Path, look: Look) -> Result<Self> {
        let tree = Tree::read(dir, look.links)?;
        let mut inodes = BTreeMap::new();
        let mut has_time = None;
        for entry in WalkDir::new(dir).min_depth(1) {
            let entry = entry.with_context(|| format!("walking {}", dir.display()))?;
            let name = entry.path().strip_prefix(dir).unwrap_or(entry.path());
            // Not what the kernel remembers: where each link has a node of its own it may be out of
            // date.
            let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statx(CWD, entry.path(), flags, StatxFlags::BASIC_STATS)
                .with_context(|| format!("looking at {}", name.display()))?;
            if name == Path::new("file") {
                has_time = look.time.map(|time| stat.stx_mtime.tv_sec == time);
            }
            let inode = Inode { links: stat.stx_nlink, owner: (stat.stx_uid, stat.stx_gid) };
            inodes.insert(name.to_string_lossy().into_owned(), inode);
        }
        let free = if look.free {
            let all = rustix::fs::statvfs(dir).context("asking what is free")?;
            Some((all.f_bfree, all.f_ffree))
        } else {
            None
        };
        Ok(Self { tree, inodes, has_time, free })
    }

    /// The differences to what should be there, a line each; empty if there are none.
    #[must_use]
    pub fn difference(&self, expected: &Self) -> String {
        let mut text = self.tree.differences(&expected.tree, "found", "expected");
        for (name, inode) in &self.inodes {
            if let Some(other) = expected.inodes.get(name).filter(|other| *other != inode) {
                let _ = writeln!(text, "{name}: {inode:?}, expected {other:?}");
            }
        }
        if self.has_time != expected.has_time {
            let _ = writeln!(
                text,
                "file: time set: {:?}, expected {:?}",
                self.has_time, expected.has_time
            );
        }
        if self.free != expected.free {
            let _ = writeln!(
                text,
                "free (blocks, inodes): {:?}, expected {:?}",
                self.free, expected.free
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tree_does_not_tell() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let look = Look { links: false, time: Some(0), free: false };
        let before = Snapshot::read(temp.path(), look).unwrap();
        assert_eq!(before.difference(&before), "");
        std::fs::hard_link(&file, temp.path().join("second")).unwrap();
        let after = Snapshot::read(temp.path(), look).unwrap();
        assert!(after.difference(&before).contains("file: Inode { links: 2"));
        let open = std::fs::File::options().write(true).open(&file).unwrap();
        open.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let touched = Snapshot::read(temp.path(), look).unwrap();
        assert!(touched.difference(&after).contains("set: Some(true), expected Some(false)"));
    }
}
