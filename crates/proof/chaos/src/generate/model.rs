//! What the generator believes of the tree and of the workers' open files.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;

use super::names::Names;
use crate::ops::Slot;

/// Names have classes, so that operations that do not go together do not meet in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// `f`: files for everything but appending.
    File,
    /// `a`: files that are only appended to and read. (A mapped page may be written back through
    /// any descriptor of the file, also through one that appends: a trap of its own that is not
    /// belay's.)
    Append,
    /// `s`: symbolic links.
    Symlink,
    /// `h`: further names of files, no data through them.
    Alias,
    /// `d`: directories. They have ranks.
    Dir,
}

/// Ranks of directories, which are in their names: `d0` and `d1` have the lowest, `d6` and `d7` the
/// highest. A directory holds directories of lower ranks only, and keeps its rank when it is
/// renamed. So directories move up and down, and yet no path has more of them than there are ranks,
/// nor a tree more than 80; and that does not depend on what the generator believes: it holds
/// whichever operations fail.
const RANKS: u32 = 4;
const OF_A_RANK: u32 = 2;

/// At most so many directories of many files at a time.
const MAX_FULL: u32 = 3;

/// The rank of a directory. The top is above them all.
fn rank(dir: &str) -> u32 {
    let number = dir.rsplit('/').next().and_then(|name| name.strip_prefix('d'));
    number.and_then(|number| number.parse().ok()).map_or(RANKS, |number: u32| number / OF_A_RANK)
}

impl Class {
    fn letter(self) -> (char, u32) {
        match self {
            Self::File => ('f', 8),
            Self::Append => ('a', 3),
            Self::Symlink => ('s', 4),
            Self::Alias => ('h', 4),
            Self::Dir => ('d', RANKS * OF_A_RANK),
        }
    }
}

/// The believed contents of one directory tree.
pub struct Tree {
    top: String,
    /// Path and class. The top itself is not in here.
    names: BTreeMap<String, Class>,
    /// Directories filled with many files.
    full: Vec<String>,
}

impl Tree {
    pub fn new(top: &str) -> Self {
        Self { top: top.to_owned(), names: BTreeMap::new(), full: Vec::new() }
    }

    /// The tree that these names make.
    pub fn of_names(names: &Names) -> Self {
        let mut tree = Self::new(".");
        let classes = [
            (&names.files, Class::File),
            (&names.dirs, Class::Dir),
            (&names.links, Class::Symlink),
        ];
        for (list, class) in classes {
            for name in list {
                tree.add(&format!("./{name}"), class);
            }
        }
        tree
    }

    /// How many names are believed to exist, directories of many files apart.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn top(&self) -> &str {
        &self.top
    }

    /// A directory believed to exist.
    pub fn dir(&self, rng: &mut ChaCha12Rng) -> String {
        self.dir_above(None, rng)
    }

    /// One above a rank.
    fn dir_above(&self, low: Option<u32>, rng: &mut ChaCha12Rng) -> String {
        let dirs: Vec<&String> = self.of(Class::Dir).filter(|d| Some(rank(d)) > low).collect();
        match dirs.choose(rng) {
            Some(dir) if rng.random_bool(0.6) => (*dir).clone(),
            _ => self.top.clone(),
        }
    }

    fn of(&self, class: Class) -> impl Iterator<Item = &String> {
        self.names.iter().filter(move |(_, c)| **c == class).map(|(name, _)| name)
    }

    /// A name of a class in some directory, whether or not it exists.
    pub fn any(&self, class: Class, rng: &mut ChaCha12Rng) -> String {
        let (letter, mut count) = class.letter();
        let mut dir = self.dir(rng);
        if class == Class::Dir {
            if rank(&dir) == 0 {
                dir.clone_from(&self.top);
            }
            count = rank(&dir) * OF_A_RANK;
        }
        format!("{dir}/{letter}{}", rng.random_range(0..count))
    }

    /// Where a directory may go to.
    pub fn any_of_rank(&self, dir: &str, rng: &mut ChaCha12Rng) -> String {
        let low = rank(dir);
        let to = self.dir_above(Some(low), rng);
        format!("{to}/d{}", low * OF_A_RANK + rng.random_range(0..OF_A_RANK))
    }

    /// Mostly a name believed to exist, sometimes any.
    pub fn existing(&self, class: Class, rng: &mut ChaCha12Rng) -> String {
        let names: Vec<&String> = self.of(class).collect();
        match names.choose(rng) {
            Some(name) if rng.random_bool(0.93) => (*name).clone(),
            _ => self.any(class, rng),
        }
    }

    /// Some name of any class but `Alias`, likely to exist.
    pub fn anything(&self, rng: &mut ChaCha12Rng) -> String {
        let class = *[Class::File, Class::File, Class::Append, Class::Symlink, Class::Dir]
            .choose(rng)
            .unwrap_or(&Class::File);
        self.existing(class, rng)
    }

    pub fn add(&mut self, path: &str, class: Class) {
        self.names.entry(path.to_owned()).or_insert(class);
    }

    pub fn remove(&mut self, path: &str) {
        self.names.remove(path);
    }

    /// Whether a directory is believed to be empty.
    pub fn is_empty(&self, dir: &str) -> bool {
        let below = format!("{dir}/");
        !self.names.keys().any(|name| name.starts_with(&below))
    }

    /// Moves a name and all below it, unless it is to replace a directory that is not empty.
    pub fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        if from == to || !self.is_empty(to) {
            return;
        }
        let moved: Vec<String> =
            self.names.keys().filter(|n| *n == from || n.starts_with(&below)).cloned().collect();
        for name in moved {
            if let Some(class) = self.names.remove(&name) {
                self.names.insert(format!("{to}{}", &name[from.len()..]), class);
            }
        }
    }

    /// A directory to be filled, unless there are enough of them.
    pub fn new_full(&mut self) -> Option<String> {
        let mut paths = (0..MAX_FULL).map(|number| format!("{}/z{number}", self.top));
        let path = paths.find(|path| !self.full.contains(path))?;
        self.full.push(path.clone());
        Some(path)
    }

    /// A directory that was filled.
    pub fn full(&self, rng: &mut ChaCha12Rng) -> Option<String> {
        self.full.choose(rng).cloned()
    }

    pub fn drop_full(&mut self, path: &str) {
        self.full.retain(|name| name != path);
    }
}

/// What is believed of an open file.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub read: bool,
    pub write: bool,
    pub append: bool,
}

/// One worker's slots for one tree.
pub struct Hands {
    files: Range<Slot>,
    streams: Range<Slot>,
    held: BTreeMap<Slot, Held>,
    listing: BTreeMap<Slot, String>,
}

impl Hands {
    pub fn new(files: Range<Slot>, streams: Range<Slot>) -> Self {
        Self { files, streams, held: BTreeMap::new(), listing: BTreeMap::new() }
    }

    /// Any slot, an empty one if there is one.
    pub fn to_fill(&self, rng: &mut ChaCha12Rng) -> Slot {
        let empty: Vec<Slot> =
            self.files.clone().filter(|slot| !self.held.contains_key(slot)).collect();
        empty.choose(rng).copied().unwrap_or_else(|| rng.random_range(self.files.clone()))
    }

    /// A slot believed to hold a file for which `fit` holds.
    pub fn holding(&self, rng: &mut ChaCha12Rng, fit: impl Fn(&Held) -> bool) -> Option<Slot> {
        let slots: Vec<Slot> =
            self.held.iter().filter(|(_, held)| fit(held)).map(|(slot, _)| *slot).collect();
        slots.choose(rng).copied()
    }

    pub fn get(&self, slot: Slot) -> Option<Held> {
        self.held.get(&slot).copied()
    }

    pub fn put(&mut self, slot: Slot, held: Held) {
        self.held.insert(slot, held);
    }

    pub fn empty(&mut self, slot: Slot) {
        self.held.remove(&slot);
    }

    /// The slot for a new listing.
    pub fn stream_to_fill(&self, rng: &mut ChaCha12Rng) -> Slot {
        rng.random_range(self.streams.clone())
    }

    pub fn list(&mut self, slot: Slot, path: &str) {
        self.listing.insert(slot, path.to_owned());
    }

    pub fn stream(&self, rng: &mut ChaCha12Rng) -> Option<Slot> {
        self.listing.keys().copied().collect::<Vec<_>>().choose(rng).copied()
    }

    pub fn end_list(&mut self, slot: Slot) {
        self.listing.remove(&slot);
    }

    pub fn is_listing(&self, path: &str) -> bool {
        self.listing.values().any(|name| name == path)
    }
}
