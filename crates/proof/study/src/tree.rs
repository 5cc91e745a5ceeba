//! Directory trees as data, to compare them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use crate::digest::{hash, hex};

/// One object of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type and rights.
    pub mode: u32,
    /// Of files.
    pub size: Option<u64>,
    /// Of files.
    pub content: Option<String>,
    /// Of symbolic links.
    pub target: Option<String>,
    /// Names and hashes of the values.
    pub xattrs: BTreeMap<String, String>,
    /// The first name of the same file, if there is one before this.
    pub same_as: Option<String>,
}

impl Node {
    /// Whether this is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        rustix::fs::FileType::from_raw_mode(self.mode).is_dir()
    }
}

/// A tree, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(
    /// Its objects.
    pub BTreeMap<String, Node>,
);

impl Tree {
    /// Reads a tree. `links` says whether inode numbers tell hard links apart from other files.
    ///
    /// # Errors
    /// When anything in it cannot be read.
    pub fn read(root: &Path, links: bool) -> Result<Self> {
        let mut nodes = BTreeMap::new();
        let mut first_names: HashMap<u64, String> = HashMap::new();
        for entry in WalkDir::new(root).min_depth(1).sort_by_file_name() {
            let entry = entry.with_context(|| format!("walking {}", root.display()))?;
            let name = entry
                .path()
                .strip_prefix(root)
                .unwrap_or(entry.path())
                .to_string_lossy()
                .into_owned();
            let node = node(entry.path(), &entry.metadata()?)
                .with_context(|| format!("looking at {name}"))?;
            nodes.insert(name, (node, entry.metadata()?));
        }
        let mut tree = BTreeMap::new();
        for (name, (mut node, meta)) in nodes {
            if links && meta.is_file() {
                let first = first_names.entry(meta.ino()).or_insert_with(|| name.clone());
                node.same_as = (*first != name).then(|| first.clone());
            }
            tree.insert(name, node);
        }
        Ok(Self(tree))
    }

    /// The differences to another tree, a line each; empty if there are none.
    pub fn differences(&self, other: &Self, this: &str, that: &str) -> String {
        let mut text = String::new();
        for (name, node) in &self.0 {
            match other.0.get(name) {
                None => {
                    let _ = writeln!(text, "{name}: only on {this}: {node:?}");
                }
                Some(theirs) if theirs != node => {
                    let _ = writeln!(text, "{name}:\n  {this}: {node:?}\n  {that}: {theirs:?}");
                }
                Some(_) => {}
            }
        }
        for (name, node) in other.0.iter().filter(|(name, _)| !self.0.contains_key(*name)) {
            let _ = writeln!(text, "{name}: only on {that}: {node:?}");
        }
        text
    }
}

fn node(path: &Path, meta: &std::fs::Metadata) -> Result<Node> {
    let mut node = Node {
        mode: meta.mode(),
        size: None,
        content: None,
        target: None,
        xattrs: BTreeMap::new(),
        same_as: None,
    };
    if meta.is_symlink() {
        // sshfs refuses to read links that lead out of the mount; then the other side must refuse
        // as well.
        let target = std::fs::read_link(path).map(|target| target.to_string_lossy().into_owned());
        node.target = Some(target.unwrap_or_else(|error| format!("unreadable: {error}")));
        return Ok(node);
    }
    if meta.is_file() {
        let mut digest = Sha256::new();
        let len = std::io::copy(&mut std::fs::File::open(path)?, &mut digest)?;
        anyhow::ensure!(
            len == meta.len(),
            "it says that it has {} bytes and gave {len}",
            meta.len()
        );
        node.size = Some(len);
        node.content = Some(hex(&digest.finalize()));
    }
    let mut list = vec![0; 65536];
    // A file system without extended attributes has none.
    let len = rustix::fs::listxattr(path, &mut list).unwrap_or(0);
    let names = list.get(..len).unwrap_or_default();
    for name in names.split(|b| *b == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 65536];
        let len = rustix::fs::getxattr(path, name, &mut value)?;
        node.xattrs.insert(
            String::from_utf8_lossy(name).into_owned(),
            hash(value.get(..len).unwrap_or_default()),
        );
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/f"), "content").unwrap();
        std::fs::hard_link(dir.path().join("d/f"), dir.path().join("g")).unwrap();
        symlink("d/f", dir.path().join("s")).unwrap();
        dir
    }

    fn differences(change: impl FnOnce(&Path)) -> String {
        let (one, other) = (sample(), sample());
        change(other.path());
        let (one, other) =
            (Tree::read(one.path(), true).unwrap(), Tree::read(other.path(), true).unwrap());
        assert_eq!(one == other, one.differences(&other, "this", "that").is_empty());
        one.differences(&other, "this", "that")
    }

    #[test]
    fn equal_trees_are_equal() {
        assert_eq!(differences(|_| ()), "");
    }

    #[test]
    fn every_difference_is_found() {
        let changes: [fn(&Path); 7] = [
            |dir| std::fs::write(dir.join("d/f"), "CONTENT").unwrap(),
            |dir| std::fs::write(dir.join("new"), "").unwrap(),
            |dir| std::fs::remove_file(dir.join("g")).unwrap(),
            |dir| {
                std::fs::set_permissions(dir.join("d"), PermissionsExt::from_mode(0o700)).unwrap()
            },
            |dir| {
                std::fs::remove_file(dir.join("s")).unwrap();
                symlink("elsewhere", dir.join("s")).unwrap();
            },
            |dir| {
                std::fs::remove_file(dir.join("g")).unwrap();
                std::fs::copy(dir.join("d/f"), dir.join("g")).unwrap();
            },
            |dir| {
                let flags = rustix::fs::XattrFlags::empty();
                // Not every temporary directory has extended attributes.
                if rustix::fs::setxattr(dir.join("g"), "user.x", b"1", flags).is_err() {
                    std::fs::remove_file(dir.join("g")).unwrap();
                }
            },
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_ne!(differences(change), "", "change {index}");
        }
    }
}
