//! Which names this life's daemon has been asked for: a table of fixed size. What that has lost
//! counts as not asked for.

use std::hash::BuildHasher;

/// Names that are known to have been asked for, at most.
const BUCKETS: usize = 1 << 15;

/// Marks of names that were asked for, each in the one bucket that its hash gives.
#[derive(Debug)]
pub(crate) struct Met {
    marks: Box<[u64]>,
    /// The attributes of the root were asked for.
    root: bool,
    hasher: foldhash::fast::RandomState,
}

impl Default for Met {
    fn default() -> Self {
        Self::with_buckets(BUCKETS)
    }
}

impl Met {
    /// A table with so many buckets, in which nothing is known.
    pub(crate) fn with_buckets(buckets: usize) -> Self {
        // Memory that is not touched costs nothing.
        Self {
            marks: vec![0; buckets.max(1)].into(),
            root: false,
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    fn mark(&self, parent: u64, name: &[u8]) -> (usize, u64) {
        let hash = self.hasher.hash_one((parent, name));
        (hash as usize % self.marks.len(), hash | 1)
    }

    /// Whether a name in the directory with this key is known to have been asked for.
    pub(crate) fn has(&self, parent: u64, name: &[u8]) -> bool {
        let (bucket, mark) = self.mark(parent, name);
        self.marks.get(bucket) == Some(&mark)
    }

    /// It was asked for.
    pub(crate) fn add(&mut self, parent: u64, name: &[u8]) {
        let (bucket, mark) = self.mark(parent, name);
        if let Some(bucket) = self.marks.get_mut(bucket) {
            *bucket = mark;
        }
    }

    /// Whether the root's attributes were asked for.
    pub(crate) fn has_root(&self) -> bool {
        self.root
    }

    /// They were.
    pub(crate) fn add_root(&mut self) {
        self.root = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_by_directory_and_name() {
        let mut met = Met::default();
        assert!(!met.has(1, b"") && !met.has(0, b""));
        met.add(1, b"name");
        met.add(2, b"");
        assert!(met.has(1, b"name") && met.has(2, b""));
        assert!(!met.has(2, b"name") && !met.has(1, b"nam") && !met.has(1, b"names"));
    }

    #[test]
    fn the_table_does_not_grow() {
        let mut met = Met::default();
        for i in 0..4 * BUCKETS as u64 {
            met.add(i, b"name");
            assert!(met.has(i, b"name"));
        }
        assert_eq!(met.marks.len(), BUCKETS);
    }
}
