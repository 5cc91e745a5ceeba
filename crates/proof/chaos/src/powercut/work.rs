//! What the applications do: steps that a seed stands for, how one is carried out, and what the
//! tree is after each.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// The kernel sends no more than a page of a small write at once, so a write may be cut off at
/// each.
const PAGE: usize = 4096;
/// Files and directories that one client has, at most.
const MOST: usize = 20;

/// An object of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Folder,
    /// A file with its content.
    File(Arc<Vec<u8>>),
    /// A symbolic link with its target.
    Link(String),
}

/// A tree, by path.
pub type Tree = BTreeMap<String, Node>;

/// Something that an application does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a directory.
    Folder(String),
    /// Makes an empty file.
    Create(String),
    /// Writes so many bytes that this seed stands for.
    Write(String, usize, usize, u8),
    /// Makes a file shorter or longer.
    Length(String, usize),
    /// Renames; what is there is replaced.
    Rename(String, String),
    /// Removes a file or link.
    Remove(String),
    /// Removes a directory.
    RemoveFolder(String),
    /// Makes a symbolic link to this target.
    Link(String, String),
    /// Makes a file durable, or a directory.
    Sync(String),
}

/// Byte `at` of what a seed stands for.
fn byte(seed: u8, at: usize) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8 ^ seed | 1
}

fn bytes(seed: u8, at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|at| byte(seed, at)).collect()
}

impl Step {
    /// Whether all that was done before is durable when this is done.
    pub fn is_sync(&self) -> bool {
        matches!(self, Self::Sync(_))
    }

    /// The parts of it that may be cut off from each other, in their order.
    pub fn parts(&self) -> Vec<Self> {
        let Self::Write(path, at, len, seed) = self else { return vec![self.clone()] };
        let (mut at, end) = (*at, at + len);
        let mut parts = Vec::new();
        while at < end {
            let part = (PAGE - at % PAGE).min(end - at);
            parts.push(Self::Write(path.clone(), at, part, *seed));
            at += part;
        }
        parts
    }

    /// Does it to a tree.
    pub fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Folder(path) => drop(tree.insert(path.clone(), Node::Folder)),
            Self::Create(path) => drop(tree.insert(path.clone(), Node::File(Arc::default()))),
            Self::Write(path, at, len, seed) => {
                if let Some(Node::File(content)) = tree.get_mut(path) {
                    let content = Arc::make_mut(content);
                    content.resize(content.len().max(at + len), 0);
                    content[*at..at + len].copy_from_slice(&bytes(*seed, *at, *len));
                }
            }
            Self::Length(path, len) => {
                if let Some(Node::File(content)) = tree.get_mut(path) {
                    Arc::make_mut(content).resize(*len, 0);
                }
            }
            Self::Rename(from, to) => {
                let below = format!("{from}/");
                let moved: Vec<String> =
                    tree.keys().filter(|path| path.starts_with(&below)).cloned().collect();
                for path in moved.into_iter().chain([from.clone()]) {
                    if let Some(node) = tree.remove(&path) {
                        tree.insert(format!("{to}{}", &path[from.len()..]), node);
                    }
                }
            }
            Self::Remove(path) | Self::RemoveFolder(path) => drop(tree.remove(path)),
            Self::Link(path, target) => {
                drop(tree.insert(path.clone(), Node::Link(target.clone())));
            }
            Self::Sync(_) => {}
        }
    }

    /// Does it to a mounted file system.
    pub fn run(&self, root: &Path) -> io::Result<()> {
        match self {
            Self::Folder(path) => std::fs::create_dir(root.join(path)),
            Self::Create(path) => File::create_new(root.join(path)).map(drop),
            Self::Write(path, at, len, seed) => {
                let file = OpenOptions::new().write(true).open(root.join(path))?;
                file.write_all_at(&bytes(*seed, *at, *len), *at as u64)
            }
            Self::Length(path, len) => {
                OpenOptions::new().write(true).open(root.join(path))?.set_len(*len as u64)
            }
            Self::Rename(from, to) => std::fs::rename(root.join(from), root.join(to)),
            Self::Remove(path) => std::fs::remove_file(root.join(path)),
            Self::RemoveFolder(path) => std::fs::remove_dir(root.join(path)),
            Self::Link(path, target) => std::os::unix::fs::symlink(target, root.join(path)),
            Self::Sync(path) => File::open(root.join(path))?.sync_all(),
        }
    }
}

/// The steps of one client, without end: a seed stands for them.
pub struct Script {
    rng: ChaCha12Rng,
    folder: String,
    tree: Tree,
    made: usize,
    /// Nothing that a FAT, or its daemon, does not know.
    fat: bool,
}

impl Script {
    /// The steps in a folder that the first of them makes.
    pub fn new(seed: u64, folder: &str) -> Self {
        let rng = ChaCha12Rng::seed_from_u64(seed);
        Self { rng, folder: folder.to_owned(), tree: Tree::new(), made: 0, fat: false }
    }

    /// The same for a FAT on fusefat: without links, without new names of directories, and no file
    /// becomes longer but the empty ones (docs/epochs.md, limits).
    pub fn of_fat(seed: u64, folder: &str) -> Self {
        Self { fat: true, ..Self::new(seed, folder) }
    }

    fn pick(&mut self, wanted: impl Fn(&str, &Node) -> bool) -> Option<String> {
        let found: Vec<&String> = self
            .tree
            .iter()
            .filter(|(path, node)| wanted(path, node))
            .map(|(path, _)| path)
            .collect();
        found.choose(&mut self.rng).map(|path| (*path).clone())
    }

    fn fresh(&mut self) -> Option<String> {
        let folder = self.pick(|_, node| *node == Node::Folder)?;
        self.made += 1;
        // Names of different length: directories are cut up in different ways.
        let name = "abcdefghijklmnopqrstuvwxyz";
        let more = &name[..self.rng.random_range(0..name.len())];
        Some(format!("{folder}/{}{more}", self.made))
    }

    fn try_next(&mut self) -> Option<Step> {
        let folder = self.folder.clone();
        if self.tree.is_empty() {
            return Some(Step::Folder(folder));
        }
        let is_file = |_: &str, node: &Node| matches!(node, Node::File(_));
        let full = self.tree.len() >= MOST;
        Some(match self.rng.random_range(0..100) {
            0..14 if !full => Step::Create(self.fresh()?),
            14..18 if !full => Step::Folder(self.fresh()?),
            18..21 if !full && !self.fat => {
                let target = format!("../{}", self.made);
                Step::Link(self.fresh()?, target)
            }
            21..46 => {
                let path = self.pick(is_file)?;
                let Some(Node::File(content)) = self.tree.get(&path) else { return None };
                let length = content.len();
                if self.fat && length > 0 {
                    let at = self.rng.random_range(0..length);
                    let some = self.rng.random_range(1..=length - at);
                    return Some(Step::Write(path, at, some, self.rng.random()));
                }
                let at = match self.rng.random_range(0..3) {
                    0 => self.rng.random_range(0..=length),
                    _ if length < 40_000 => length,
                    _ => 0,
                };
                let most = if self.rng.random_ratio(1, 4) { 24_000 } else { 3000 };
                Step::Write(path, at, self.rng.random_range(1..most), self.rng.random())
            }
            46..51 => {
                let path = self.pick(is_file)?;
                let Some(Node::File(content)) = self.tree.get(&path) else { return None };
                // fusefat refuses to keep a length as well.
                let most = if self.fat { content.len() } else { 30_000 };
                if most == 0 {
                    return None;
                }
                Step::Length(path, self.rng.random_range(0..most))
            }
            51..61 => {
                // fusefat does not find what is in a directory that was renamed, also without
                // belay.
                let fat = self.fat;
                let from =
                    self.pick(|path, node| path != folder && !(fat && *node == Node::Folder))?;
                let to = match self.rng.random_range(0..3) {
                    0 if is_file("", self.tree.get(&from)?) => self.pick(is_file)?,
                    _ => self.fresh()?,
                };
                if to == from || to.starts_with(&format!("{from}/")) {
                    return None;
                }
                Step::Rename(from, to)
            }
            61..72 => Step::Remove(self.pick(|_, node| *node != Node::Folder)?),
            72..75 => {
                let path = self.pick(|path, node| *node == Node::Folder && path != folder)?;
                let below = format!("{path}/");
                if self.tree.keys().any(|other| other.starts_with(&below)) {
                    return None;
                }
                Step::RemoveFolder(path)
            }
            75..92 => Step::Sync(self.pick(is_file)?),
            92..100 => Step::Sync(self.pick(|_, node| *node == Node::Folder)?),
            _ => return None,
        })
    }
}

impl Iterator for Script {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.try_next() {
                step.apply(&mut self.tree);
                return Some(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_study::tree;

    /// What the steps are believed to do is what they do in a plain directory.
    #[test]
    fn the_model_is_what_a_directory_does() {
        for seed in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let mut model = Tree::new();
            let mut pages = Tree::new();
            for step in Script::new(seed, "c").take(400) {
                step.run(dir.path()).unwrap_or_else(|why| panic!("{step:?}: {why}"));
                step.apply(&mut model);
                for part in step.parts() {
                    part.apply(&mut pages);
                }
            }
            assert!(model == pages && model.len() > 5);
            let seen = tree::Tree::read(dir.path(), false).unwrap();
            assert!(seen.0.keys().eq(model.keys()));
            for (path, node) in &model {
                let real = dir.path().join(path);
                match node {
                    Node::Folder => assert!(real.is_dir()),
                    Node::File(content) => assert!(std::fs::read(real).unwrap() == **content),
                    Node::Link(target) => {
                        assert_eq!(std::fs::read_link(real).unwrap(), Path::new(target));
                    }
                }
            }
        }
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let steps = |seed| Script::new(seed, "c").take(200).collect::<Vec<_>>();
        assert!(steps(1) == steps(1) && steps(1) != steps(2));
        let fat: Vec<_> = Script::of_fat(1, "c").take(400).collect();
        assert!(!fat.iter().any(|step| matches!(step, Step::Link(..))), "a FAT has no links");
        let syncs = steps(3).iter().filter(|step| step.is_sync()).count();
        assert!((20..80).contains(&syncs), "{syncs}");
    }
}
