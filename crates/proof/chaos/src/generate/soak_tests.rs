//! What a long soak may come to: nothing that is generated grows without end.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::Generator;
use super::names::Names;
use super::tests::ALL;
use crate::exec::Executor;
use crate::ops::{Op, RenameHow, Round};

const WORKERS: usize = 3;
/// Of the workers, and the shared one.
const TREES: usize = WORKERS + 1;
/// Components of a path below the top: four directories of different ranks, and a file.
const DEPTH: usize = 5;
/// The top, and what there can be of directories: of each rank one of two or none, the top left
/// out. In each of them files, symbolic links and aliases, in the top also directories of many
/// files.
const NAMES: usize = TREES * (81 + 81 * (8 + 3 + 4 + 4) + 3);
/// Names in directories of many files.
const MANY: u32 = 4 * 3 * 500;

/// A file system with names only. Whether something is a directory; for a directory of many files,
/// how many.
#[derive(Default)]
struct World {
    names: BTreeMap<String, Node>,
}

#[derive(Clone, Copy, PartialEq)]
enum Node {
    Dir,
    Leaf,
    Full(u32),
}

impl World {
    fn is_dir(&self, path: &str) -> bool {
        matches!(self.names.get(path), Some(Node::Dir | Node::Full(_)))
    }

    fn below(&self, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let names = self.names.range(below.clone()..).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(&below)).cloned().collect()
    }

    fn make(&mut self, path: &str, node: Node) {
        if path.rsplit_once('/').is_none_or(|(parent, _)| self.is_dir(parent)) {
            self.names.entry(path.to_owned()).or_insert(node);
        }
    }

    fn take(&mut self, path: &str) -> Vec<(String, Node)> {
        let mut names = self.below(path);
        names.push(path.to_owned());
        let taken = names.into_iter().filter_map(|name| self.names.remove_entry(&name));
        taken.map(|(name, node)| (name[path.len()..].to_owned(), node)).collect()
    }

    fn put(&mut self, taken: Vec<(String, Node)>, path: &str) {
        self.names.extend(taken.into_iter().map(|(rest, node)| (format!("{path}{rest}"), node)));
    }

    fn rename(&mut self, from: &str, to: &str, how: RenameHow) {
        let there = to.rsplit_once('/').is_some_and(|(parent, _)| self.is_dir(parent));
        let within = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
        if !self.names.contains_key(from) || !there || within(to, from) || within(from, to) {
            return;
        }
        match (how, self.names.contains_key(to)) {
            (RenameHow::Exchange, true) => {
                let (one, other) = (self.take(from), self.take(to));
                self.put(one, to);
                self.put(other, from);
            }
            (RenameHow::Exchange, false) | (RenameHow::NoReplace, true) => {}
            (_, exists) => {
                if exists && (self.is_dir(from) != self.is_dir(to) || !self.below(to).is_empty()) {
                    return;
                }
                let moved = self.take(from);
                self.put(moved, to);
            }
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Mkdir { path, .. } => self.make(path, Node::Dir),
            Op::Fill { path, count } => self.make(path, Node::Full(*count)),
            Op::Open { path, how, .. } if how.create => self.make(path, Node::Leaf),
            Op::Symlink { path, .. } | Op::WriteFile { path, .. } => self.make(path, Node::Leaf),
            Op::Link { from, to } if self.names.contains_key(from) => self.make(to, Node::Leaf),
            Op::Unlink { path } if !self.is_dir(path) => drop(self.names.remove(path)),
            Op::Purge { path } => drop(self.names.remove(path)),
            Op::Rmdir { path } if self.is_dir(path) && self.below(path).is_empty() => {
                self.names.remove(path);
            }
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            _ => {}
        }
    }

    fn depth(&self) -> usize {
        self.names.keys().map(|name| name.matches('/').count()).max().unwrap_or(0)
    }

    fn many(&self) -> u32 {
        let full = |node: &Node| if let Node::Full(count) = node { *count } else { 0 };
        self.names.values().map(full).sum()
    }
}

fn ops(round: &Round) -> impl Iterator<Item = &Op> {
    round.own.iter().chain(&round.shared).flat_map(|batch| &batch.ops)
}

/// Whatever a file system refuses: the generator does not learn of it.
#[test]
fn names_do_not_grow_without_end() {
    for (seed, refused) in [(1, 0.0), (2, 0.1), (3, 0.5)] {
        let mut generator = Generator::new(seed, WORKERS, ALL, &Names::default());
        let mut coin = ChaCha12Rng::seed_from_u64(seed);
        let mut world = World::default();
        ops(&generator.prologue()).for_each(|op| world.run(op));
        let (mut count, mut deepest) = (0, 0);
        while count < 200_000 {
            for op in ops(&generator.round()) {
                count += 1;
                if !coin.random_bool(refused) {
                    world.run(op);
                }
            }
            let at = format!("seed {seed}, after {count} operations");
            let (names, believed, many) = (world.names.len(), generator.names(), world.many());
            assert!(world.depth() <= DEPTH, "{at}: {} deep", world.depth());
            assert!(
                names <= NAMES && believed <= NAMES,
                "{at}: {names} names, {believed} believed"
            );
            assert!(many <= MANY, "{at}: {many} names in directories of many files");
            deepest = deepest.max(world.depth());
        }
        assert_eq!(deepest, DEPTH, "seed {seed}: directories go into directories");
    }
}

/// On a real file system.
#[test]
fn files_do_not_grow_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut generator = Generator::new(1, 1, ALL, &Names::default());
    let mut executor = Executor::new(dir.path(), true).unwrap();
    let mut count = 0;
    let mut round = generator.prologue();
    while count < 30_000 {
        for op in ops(&round) {
            count += 1;
            executor.run(op);
        }
        round = generator.round();
    }
    let (mut largest, mut total) = (0, 0);
    let mut dirs = vec![dir.path().to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let found = entry.metadata().unwrap();
            if found.is_dir() {
                dirs.push(entry.path());
            } else {
                largest = largest.max(found.len());
                total += found.len();
            }
        }
    }
    assert!(largest < 2 << 20, "a file of {largest} bytes");
    assert!((1 << 20..100 << 20).contains(&total), "{total} bytes");
}
