//! A tree of very many files, for the measurements that ask what a big cache of nodes costs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::AtFlags;
use rustix::process::{Resource, Rlimit};

use crate::ops::open_dir;

/// Files in one directory of the tree.
const PER_DIRECTORY: u64 = 1_000;

/// The shape of a tree: file `i` is `nodes/d<i / 1000>/f<i % 1000>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTree {
    files: u64,
}

impl NodeTree {
    /// A tree of `nodes` nodes in all; its directories count.
    pub fn of_nodes(nodes: u64) -> Self {
        let directories = nodes.div_ceil(PER_DIRECTORY + 1);
        // One more for the directory at the top.
        Self { files: nodes.saturating_sub(directories + 1) }
    }

    /// Number of its files.
    pub fn files(self) -> u64 {
        self.files
    }

    /// Number of nodes that the first `files` files bring with them: themselves and the directories
    /// above.
    pub fn nodes_with(files: u64) -> u64 {
        if files == 0 { 0 } else { files + files.div_ceil(PER_DIRECTORY) + 1 }
    }

    /// Path of file `index`, relative to the root.
    pub fn path(index: u64) -> PathBuf {
        Self::directory(index).join(format!("f{}", index % PER_DIRECTORY))
    }

    fn directory(index: u64) -> PathBuf {
        PathBuf::from(format!("nodes/d{}", index / PER_DIRECTORY))
    }

    /// Makes the tree below `root`, best the directory behind the mount.
    pub fn build(self, root: &Path) -> Result<()> {
        for index in 0..self.files {
            if index % PER_DIRECTORY == 0 {
                let dir = root.join(Self::directory(index));
                fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
            }
            let path = root.join(Self::path(index));
            // Some content, so that the probe has something to read from each.
            let content: &[u8] = if index < SAMPLE { &[b'n'; 4096] } else { b"" };
            fs::write(&path, content).with_context(|| format!("create {}", path.display()))?;
        }
        Ok(())
    }

    /// Looks up the files `from..to` through the mount at `root`, each once.
    pub fn look_up(root: &Path, from: u64, to: u64) -> Result<()> {
        let mut index = from;
        while index < to {
            let end = (index / PER_DIRECTORY + 1).saturating_mul(PER_DIRECTORY).min(to);
            let dir = open_dir(&root.join(Self::directory(index)))?;
            for file in index..end {
                let name = format!("f{}", file % PER_DIRECTORY);
                rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)
                    .with_context(|| format!("look up {}", Self::path(file).display()))?;
            }
            index = end;
        }
        Ok(())
    }

    /// Opens the first `count` files for reading.
    pub fn open(root: &Path, count: u64) -> Result<Vec<File>> {
        raise_open_file_limit()?;
        (0..count)
            .map(|index| {
                let path = root.join(Self::path(index));
                File::open(&path)
                    .with_context(|| format!("open {} (file {index} of {count})", path.display()))
            })
            .collect()
    }
}

/// Files with content, at the start of the tree.
pub const SAMPLE: u64 = 10_000;

/// Raises the soft limit of open files to the hard one, for this process and those it starts.
pub fn raise_open_file_limit() -> Result<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .context("raise the limit of open files")?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_nodes_that_were_asked_for() {
        for nodes in [3, 1_000, 1_002, 1_003, 20_000, 1_000_000] {
            let tree = NodeTree::of_nodes(nodes);
            let made = NodeTree::nodes_with(tree.files());
            assert!(nodes.abs_diff(made) <= 1, "{nodes} asked for, {made} made");
        }
        assert_eq!(NodeTree::of_nodes(0).files(), 0);
        assert_eq!(NodeTree::nodes_with(0), 0);
    }

    #[test]
    fn a_tree_is_built_looked_up_and_opened() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let tree = NodeTree { files: 2_500 };
        tree.build(dir.path())?;
        NodeTree::look_up(dir.path(), 0, 2_500)?;
        NodeTree::look_up(dir.path(), 990, 1_010)?;
        assert!(NodeTree::look_up(dir.path(), 0, 2_501).is_err());
        assert_eq!(NodeTree::open(dir.path(), 7)?.len(), 7);
        Ok(())
    }
}
