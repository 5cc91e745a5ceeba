//! Which inode number each name had when it was last seen, to notice one that changes while the object lives.

use std::collections::BTreeMap;

/// Names and inode numbers. Only what this worker has done itself is followed, so names that others change must be
/// forgotten in between.
#[derive(Debug, Default)]
pub struct Inodes {
    known: BTreeMap<String, u64>,
}

impl Inodes {
    /// Notes the number seen under a name; false if the same object had another one before.
    pub fn see(&mut self, path: &str, ino: u64) -> bool {
        *self.known.entry(path.to_owned()).or_insert(ino) == ino
    }

    /// The name is gone, or a name of another object.
    pub fn forget(&mut self, path: &str) {
        self.take(path);
    }

    /// The object at `from`, and all below it, is now at `to`.
    pub fn rename(&mut self, from: &str, to: &str) {
        // Renaming a name over another name of the same inode does nothing at all.
        if from == to || self.known.get(from).is_some_and(|ino| self.known.get(to) == Some(ino)) {
            return;
        }
        let moved = self.take(from);
        self.forget(to);
        self.put(moved, from, to);
    }

    /// The two objects have changed places.
    pub fn exchange(&mut self, one: &str, other: &str) {
        let (first, second) = (self.take(one), self.take(other));
        self.put(first, one, other);
        self.put(second, other, one);
    }

    /// `to` is a further name of the object at `from`.
    pub fn link(&mut self, from: &str, to: &str) {
        self.forget(to);
        if let Some(ino) = self.known.get(from) {
            self.known.insert(to.to_owned(), *ino);
        }
    }

    fn take(&mut self, path: &str) -> Vec<(String, u64)> {
        let below = format!("{path}/");
        let names: Vec<String> = self
            .known
            .keys()
            .filter(|name| *name == path || name.starts_with(&below))
            .cloned()
            .collect();
        names.into_iter().filter_map(|name| self.known.remove_entry(&name)).collect()
    }

    fn put(&mut self, entries: Vec<(String, u64)>, from: &str, to: &str) {
        self.known.extend(
            entries.into_iter().map(|(name, ino)| (format!("{to}{}", &name[from.len()..]), ino)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_their_objects() {
        let mut inodes = Inodes::default();
        assert!(inodes.see("d/f", 1) && inodes.see("d", 2) && inodes.see("dd", 3));
        inodes.rename("d", "e");
        assert!(inodes.see("e/f", 1) && !inodes.see("e", 9) && inodes.see("dd", 3));
        assert!(inodes.see("d", 7), "the old name is free");
        inodes.exchange("e", "dd");
        assert!(inodes.see("dd/f", 1) && inodes.see("e", 3));
        inodes.link("dd/f", "g");
        assert!(!inodes.see("g", 5));
        inodes.rename("g", "dd/f");
        assert!(inodes.see("g", 1), "both names stay");
        inodes.forget("dd");
        assert!(inodes.see("dd/f", 8));
    }
}
