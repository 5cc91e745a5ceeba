//! What a volume promises after a power failure: all operations on names up to some point, in their
//! order, and of each file that was synced before that the data that it had then, or what was
//! written to it later. Data that were not synced may be there, page by page.

use super::check::difference;
use super::in_place::Later;
use super::work::{Node, Step, Tree};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A page is old or new, and never a mixture.
pub const PAGE: usize = 4096;

/// What a page can be.
type Versions = Vec<Vec<u8>>;

/// A file's pages.
#[derive(Default)]
struct Pages {
    /// All that each can be.
    versions: Vec<Versions>,
    /// The lengths that the file has had, one after the other.
    lengths: Vec<usize>,
}

/// A tree, and for each page of its files all that it can be.
#[derive(Default)]
struct Possible {
    tree: Tree,
    files: BTreeMap<String, Pages>,
}

/// A page of a content, zeros behind its end.
pub fn page(content: &[u8], number: usize) -> Vec<u8> {
    let start = (number * PAGE).min(content.len());
    let end = (start + PAGE).min(content.len());
    let mut page = content[start..end].to_vec();
    page.resize(PAGE, 0);
    page
}

impl Possible {
    fn content(&self, path: &str) -> Option<&Arc<Vec<u8>>> {
        match self.tree.get(path) {
            Some(Node::File(content)) => Some(content),
            _ => None,
        }
    }

    /// Does a part of a step. `is_durable`: it has ended, and its promise is given.
    fn apply(&mut self, step: &Step, is_durable: bool) {
        step.apply(&mut self.tree);
        match step {
            Step::Create(path) => {
                let pages = Pages { versions: Vec::new(), lengths: vec![0] };
                self.files.insert(path.clone(), pages);
            }
            Step::Write(path, at, len, _) => {
                self.resize(path);
                let Some(Node::File(content)) = self.tree.get(path) else { return };
                let Some(pages) = self.files.get_mut(path) else { return };
                for number in at / PAGE..(at + len).div_ceil(PAGE) {
                    let new = page(content, number);
                    if let Some(versions) = pages.versions.get_mut(number)
                        && !versions.contains(&new)
                    {
                        versions.push(new);
                    }
                }
            }
            Step::Length(path, length) => {
                self.resize(path);
                let last = self.files.get_mut(path).and_then(|pages| pages.versions.last_mut());
                if let Some(versions) = last
                    && length % PAGE != 0
                {
                    versions.iter_mut().for_each(|version| version[length % PAGE..].fill(0));
                    versions.sort_unstable();
                    versions.dedup();
                }
            }
            Step::Rename(from, to) => {
                let below = format!("{from}/");
                let moved =
                    self.files.keys().filter(|path| *path == from || path.starts_with(&below));
                let moved: Vec<String> = moved.cloned().collect();
                // What it replaces is gone, whether anything is moved there or not.
                self.files.remove(to);
                for path in moved {
                    let new = format!("{to}{}", &path[from.len()..]);
                    if let Some(pages) = self.files.remove(&path) {
                        self.files.insert(new, pages);
                    }
                }
            }
            Step::Remove(path) => drop(self.files.remove(path)),
            Step::Sync(path) if is_durable => {
                if let Some(content) = self.content(path).cloned() {
                    let all = (0..content.len().div_ceil(PAGE)).map(|n| vec![page(&content, n)]);
                    self.files.entry(path.clone()).or_default().versions = all.collect();
                }
            }
            Step::Folder(_) | Step::RemoveFolder(_) | Step::Link(..) | Step::Sync(_) => {}
        }
    }

    /// Each file has as many pages as its length takes.
    fn resize(&mut self, path: &str) {
        let length = self.content(path).map_or(0, |content| content.len());
        if let Some(pages) = self.files.get_mut(path) {
            pages.lengths.push(length);
            pages.versions.resize(length.div_ceil(PAGE), vec![vec![0; PAGE]]);
        }
    }

    /// Whether a tree can be this one. `later`: of data that are written in place, what is written
    /// after so many steps.
    fn can_be(&self, found: &Tree, later: Option<(&Later, usize)>) -> bool {
        let is_like = |(a, b): ((&String, &Node), (&String, &Node))| {
            let alike = match (a.1, b.1) {
                (Node::File(a), Node::File(b)) => a.len() == b.len(),
                (a, b) => a == b,
            };
            alike && a.0 == b.0
        };
        self.tree.len() == found.len()
            && self.tree.iter().zip(found).all(is_like)
            && found.iter().all(|(path, node)| self.has(path, node, later))
    }

    fn has(&self, path: &str, node: &Node, later: Option<(&Later, usize)>) -> bool {
        let (Node::File(content), Some(pages)) = (node, self.files.get(path)) else {
            return !matches!(node, Node::File(_));
        };
        pages.versions.iter().enumerate().all(|(number, versions)| {
            let may_be = |(later, done): (&Later, usize)| {
                later.may_be(done, number, content, (versions, &pages.lengths))
            };
            versions.contains(&page(content, number)) || later.is_some_and(may_be)
        })
    }
}

/// How many steps of an application are in a tree: at least `names` must be, and at most all of
/// `steps`. Syncs before `synced` have ended. `later`: what the steps write, if data are written in
/// place.
///
/// # Errors
/// If it is not as after any of them.
pub fn steps_in(
    found: &Tree,
    steps: impl Iterator<Item = Step>,
    names: usize,
    synced: usize,
    later: Option<&Later>,
) -> Result<usize> {
    let mut possible = Possible::default();
    let mut earlier = None;
    let mut closest: Option<(usize, usize, String)> = None;
    let mut look = |possible: &Possible, done: usize| {
        let is_there = possible.can_be(found, later.map(|later| (later, done)));
        if is_there && done < names {
            earlier = Some(done);
        } else if !is_there && done >= names {
            let (count, text) = difference(&possible.tree, found);
            if closest.as_ref().is_none_or(|(least, ..)| count < *least) {
                closest = Some((count, done, text));
            }
        }
        is_there && done >= names
    };
    if look(&possible, 0) {
        return Ok(0);
    }
    for (done, step) in steps.enumerate() {
        let parts = step.parts();
        for (number, part) in parts.iter().enumerate() {
            possible.apply(part, done < synced);
            let done = if number + 1 == parts.len() { done + 1 } else { done };
            if look(&possible, done) {
                return Ok(done);
            }
        }
    }
    if let Some(earlier) = earlier {
        bail!("{names} steps are durable, and only {earlier} are there");
    }
    let (_, done, text) = closest.unwrap_or_default();
    bail!("it is as after no step; closest after {done} ({names} are durable): {text}")
}

#[cfg(test)]
mod tests {
    use super::super::work::Script;
    use super::*;

    fn steps() -> Vec<Step> {
        let path = || "c/f".to_owned();
        vec![
            Step::Folder("c".into()),
            Step::Create(path()),
            Step::Write(path(), 0, 6000, 1),
            Step::Sync(path()),
            Step::Write(path(), 5000, 4000, 2),
            Step::Create("c/g".into()),
        ]
    }

    fn after(count: usize) -> Tree {
        let mut tree = Tree::new();
        steps().iter().take(count).for_each(|step| step.apply(&mut tree));
        tree
    }

    fn found(tree: &Tree, names: usize, synced: usize) -> Result<usize> {
        steps_in(tree, steps().into_iter(), names, synced, None)
    }

    #[test]
    fn data_that_were_not_synced_may_be_missing_by_pages() {
        let whole = after(6);
        assert_eq!(found(&whole, 4, 4).unwrap(), 6);
        let file = |tree: &Tree| match &tree["c/f"] {
            Node::File(content) => content.to_vec(),
            _ => panic!(),
        };
        let with = |content: Vec<u8>| {
            let mut tree = after(6);
            tree.insert("c/f".into(), Node::File(Arc::new(content)));
            tree
        };
        // The second page is what it was when it was synced, and zeros behind.
        let mut old = file(&after(4));
        old.resize(9000, 0);
        assert_eq!(found(&with(old.clone()), 4, 4).unwrap(), 6);
        // What was synced is there.
        let mut lost = old.clone();
        lost[..4096].fill(0);
        assert!(found(&with(lost.clone()), 4, 4).is_err());
        assert_eq!(found(&with(lost), 0, 0).unwrap(), 6);
        // No mixture of both.
        let mut torn = file(&whole);
        torn[4096..6000].copy_from_slice(&old[4096..6000]);
        assert!(found(&with(torn), 4, 4).is_err());
    }

    #[test]
    fn names_come_in_their_order() {
        let mut tree = after(6);
        assert!(found(&after(4), 5, 4).unwrap_err().to_string().contains("only 4 are there"));
        tree.insert("c/h".into(), Node::Folder);
        assert!(found(&tree, 0, 0).is_err());
    }

    #[test]
    fn all_that_a_directory_shows_is_possible() {
        for seed in 0..8 {
            let script = || Script::new(seed, "c").take(300);
            let mut tree = Tree::new();
            for (done, step) in script().enumerate() {
                step.apply(&mut tree);
                if done % 23 == 0 {
                    let synced = done.saturating_sub(5);
                    let last =
                        steps_in(&tree, script().take(done + 1), synced, synced, None).unwrap();
                    assert!((synced..=done + 1).contains(&last));
                }
            }
        }
    }
}
