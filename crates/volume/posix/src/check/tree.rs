//! Whether a directory is a tree of names: each page reached once, keys in order and within what
//! leads to the page, and each name under a key that it is found by.

use crate::directory::{self, DEEPEST, Entry, FIRST, Node, PROBES};
use crate::namespace::check_name;
use crate::own::ORPHANS;
use crate::secret::Secret;
use belay_object::{Lower, ObjectId, PAGE};
use roaring::RoaringTreemap;

/// A directory that is gone through.
pub struct Tree {
    directory: ObjectId,
    pages: u64,
    seen: RoaringTreemap,
    /// Pages that are to be looked at, in their order from the last one on.
    ahead: Vec<Page>,
    /// Names under the last few keys: two that are the same have keys that are near.
    last: Vec<(u64, Vec<u8>)>,
    /// What is wrong.
    pub wrong: Vec<String>,
    /// By which the names are hashed, if it is known.
    secret: Option<Secret>,
}

/// A page, the keys that belong into it, and how many there are above it.
struct Page {
    page: u64,
    from: u64,
    to: u64,
    depth: usize,
}

/// Findings in one directory.
const MOST: usize = 8;

impl Tree {
    /// That of a directory of so many bytes, whose names are hashed by that secret.
    pub fn new(directory: ObjectId, size: u64, secret: Option<Secret>) -> Self {
        let pages = size.div_ceil(PAGE as u64);
        let top = Page { page: 0, from: 0, to: u64::MAX, depth: 0 };
        let ahead = if pages > 0 { vec![top] } else { Vec::new() };
        let (seen, last, wrong) = (RoaringTreemap::new(), Vec::new(), Vec::new());
        Self { directory, pages, seen, ahead, last, wrong, secret }
    }

    fn add(&mut self, what: String) {
        if self.wrong.len() < MOST {
            self.wrong.push(what);
        }
    }

    /// The names of the next leaf; `None` at the end.
    pub fn next<B: Lower>(&mut self, below: &mut B) -> Option<Vec<Entry>> {
        while let Some(next) = self.ahead.pop() {
            let found = self.page(below, &next);
            if found.is_some() {
                return found;
            }
        }
        if self.wrong.is_empty() && self.seen.len() != self.pages {
            let lost = self.pages - self.seen.len();
            self.add(format!("{lost} of its {} pages are reached by no way", self.pages));
        }
        None
    }

    fn page<B: Lower>(&mut self, below: &mut B, at: &Page) -> Option<Vec<Entry>> {
        let Page { page, from, to, depth } = *at;
        if page >= self.pages || depth > DEEPEST || !self.seen.insert(page) {
            self.add(format!("page {page} is behind its end, or reached twice"));
            return None;
        }
        let mut content = [0; PAGE];
        if let Err(why) = below.read(self.directory, page, &mut content) {
            self.add(format!("page {page} cannot be read, and names are lost: {why}"));
            return None;
        }
        let inner = match directory::decode::<B::Error>(&content) {
            Ok(Node::Leaf(entries)) => {
                for entry in &entries {
                    if !(from..to).contains(&entry.key) {
                        self.add(format!("page {page} has names that belong into another one"));
                    }
                    self.entry(entry);
                }
                return Some(entries);
            }
            Ok(Node::Inner(inner)) => inner,
            Err(why) => {
                self.add(format!("page {page} makes no sense, and names are lost: {why}"));
                return None;
            }
        };
        let ends = inner.iter().skip(1).map(|(least, _)| *least).chain([to]);
        let depth = depth + 1;
        let mut children = Vec::new();
        for ((from, page), to) in inner.iter().copied().zip(ends) {
            children.push(Page { page, from, to, depth });
        }
        if children.iter().any(|child| !(from..to).contains(&child.from)) {
            self.add(format!("page {page} leads to what belongs below another one"));
        }
        self.ahead.extend(children.into_iter().rev());
        None
    }

    fn entry(&mut self, entry: &Entry) {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        // Those that were removed are kept under their numbers.
        if self.directory != ORPHANS && check_name(&entry.name).is_err() {
            self.add(format!("{name:?} is no name"));
        }
        let hash = self.secret.map(|secret| secret.hash(self.directory, &entry.name));
        let is_found = |hash| (hash..hash + PROBES).contains(&entry.key);
        if entry.key < FIRST || !hash.is_none_or(is_found) {
            self.add(format!("{name:?} is not found where it is"));
        }
        self.last.retain(|(key, _)| key.saturating_add(PROBES) > entry.key);
        if self.last.iter().any(|(_, other)| *other == entry.name) {
            self.add(format!("{name:?} is in it twice"));
        }
        self.last.push((entry.key, entry.name.clone()));
    }
}
