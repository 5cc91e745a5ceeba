//! Under which name a node is found on the last checkpoint, and at any point of the log.
//!
//! What a name meant at the checkpoint is what the first record that changes it says it meant
//! before; names that no record changes mean what they mean now. That is the same as to start from
//! the names as they are now and to undo the log from its end, and does not need all names of a
//! mount to be copied: they are asked for one node at a time.
//!
//! The kernel forgets nodes when it likes, and gets another key for each when it asks again. No
//! record says so; but a name that means one key by the records so far, and another before the next
//! change of it, is that of one node.

use crate::log::Oplog;
use crate::record::{Corrupt, NameChange};
use belay_memory::Memory;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The longest path that is found.
const MAX_DEPTH: usize = 4096;

/// A directory's key and a name in it.
type DirEntry = (u64, Vec<u8>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Key of the directory.
    pub parent: u64,
    /// The name in it.
    pub name: Vec<u8>,
    /// Key of what it names.
    pub key: u64,
}

/// Names as they are now, as far as anybody knows: of a node, its directories' keys and its names
/// in them.
pub trait Names {
    /// The names of `key`.
    fn names(&self, key: u64) -> Vec<(u64, Vec<u8>)>;
}

impl<F: Fn(u64) -> Vec<(u64, Vec<u8>)>> Names for F {
    fn names(&self, key: u64) -> Vec<(u64, Vec<u8>)> {
        self(key)
    }
}

impl Names for HashMap<u64, Vec<(u64, Vec<u8>)>> {
    fn names(&self, key: u64) -> Vec<(u64, Vec<u8>)> {
        self.get(&key).cloned().unwrap_or_default()
    }
}

/// [`Names`] from triples of directory, name and node.
pub fn from_triples(
    triples: impl IntoIterator<Item = (u64, Vec<u8>, u64)>,
) -> HashMap<u64, Vec<(u64, Vec<u8>)>> {
    let mut names: HashMap<u64, Vec<(u64, Vec<u8>)>> = HashMap::new();
    for (parent, name, child) in triples {
        names.entry(child).or_default().push((parent, name));
    }
    names
}

/// The names that records change, at one point of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// What each of these names means, 0 for nothing.
    changed: BTreeMap<DirEntry, u64>,
    /// And back.
    names: HashMap<u64, BTreeSet<DirEntry>>,
    /// Keys that the kernel has given up, and those that it got for the same nodes since.
    renewed: HashMap<u64, u64>,
}

impl Namespace {
    /// As it was at the checkpoint that the log starts from.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn at_checkpoint<M: Memory>(log: &Oplog<M>) -> Result<Self, Corrupt> {
        let mut space = Self::default();
        for record in log.notable() {
            for change in &record?.names {
                let entry = (change.parent, change.name.to_vec());
                if !space.changed.contains_key(&entry) {
                    space.set(entry, change.before);
                }
            }
        }
        Ok(space)
    }

    /// Moves behind a record, whose name changes these are.
    pub fn forward(&mut self, changes: &[NameChange<'_>]) {
        for change in changes {
            let entry = (change.parent, change.name.to_vec());
            if let Some(known) = self.changed.get(&entry) {
                self.renew(*known, change.before);
            }
            self.set(entry, change.after);
        }
    }

    /// What a name means at this point, 0 for nothing; `None` if no record says so.
    pub fn at(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.changed.get(&(parent, name.to_vec())).copied()
    }

    /// All names of which records say what they mean at this point: directory, name, node (0 for
    /// none).
    pub fn all(&self) -> impl Iterator<Item = (u64, Vec<u8>, u64)> + '_ {
        self.changed.iter().map(|((parent, name), key)| (*parent, name.clone(), *key))
    }

    /// What the kernel knows the node as now that it knew as `key`, had forgotten, and asked for
    /// anew, as far as records tell.
    pub fn renewed(&self, key: u64) -> u64 {
        let mut key = key;
        // Keys are never used twice, but that is not for the log to promise.
        for _ in 0..MAX_DEPTH {
            match self.renewed.get(&key) {
                Some(new) => key = *new,
                None => break,
            }
        }
        key
    }

    /// What was known as `old` is found to be known as `new`, and so is all that is below it.
    fn renew(&mut self, old: u64, new: u64) {
        let mut pairs = vec![(old, new)];
        while let Some((old, new)) = pairs.pop() {
            if old == 0 || new == 0 || old == new || self.renewed.get(&old) == Some(&new) {
                continue;
            }
            self.renewed.insert(old, new);
            let below = self.changed.range((old, Vec::new())..);
            let below = below.take_while(|((parent, _), _)| *parent == old);
            let below: Vec<_> = below.map(|(entry, key)| (entry.clone(), *key)).collect();
            for (entry, key) in below {
                self.take(&entry);
                let entry = (new, entry.1);
                match self.changed.get(&entry) {
                    Some(known) => pairs.push((key, *known)),
                    None => self.set(entry, key),
                }
            }
        }
    }

    /// Nothing is said of a name any more.
    fn take(&mut self, entry: &DirEntry) {
        let before = self.changed.remove(entry).unwrap_or(0);
        if let Some(names) = self.names.get_mut(&before) {
            names.remove(entry);
            if names.is_empty() {
                self.names.remove(&before);
            }
        }
    }

    fn set(&mut self, entry: DirEntry, key: u64) {
        self.take(&entry);
        self.changed.insert(entry.clone(), key);
        if key != 0 {
            self.names.entry(key).or_default().insert(entry);
        }
    }

    /// The names of `key` at this point, where those that no record changes are `now`.
    pub fn names(&self, key: u64, now: &impl Names) -> Vec<(u64, Vec<u8>)> {
        let mut names: Vec<DirEntry> =
            self.names.get(&key).into_iter().flatten().cloned().collect();
        names.extend(now.names(key).into_iter().filter(|entry| !self.changed.contains_key(entry)));
        names
    }

    /// A path from the directory `root` to `key` at this point: empty for `root` itself, `None` if
    /// it had no name.
    pub fn path(&self, root: u64, key: u64, now: &impl Names) -> Option<Vec<Link>> {
        if key == root {
            return Some(Vec::new());
        }
        // Of the names of a file, one may be in a directory that is gone.
        self.names(key, now).into_iter().find_map(|(parent, name)| {
            let mut path = vec![Link { parent, name, key }];
            let mut at = parent;
            while at != root {
                let (parent, name) = self.names(at, now).into_iter().next()?;
                path.push(Link { parent, name, key: at });
                at = parent;
                if path.len() > MAX_DEPTH {
                    return None;
                }
            }
            path.reverse();
            Some(path)
        })
    }
}
