//! The seeded generator of operation sequences.
//!
//! It believes that what it asked for succeeded, and picks names and slots by that belief; being
//! wrong now and then costs nothing, as errors are compared too. It never looks at outcomes, so a
//! seed gives the same sequence whatever it runs on.

mod arguments;
mod menu;
mod model;
mod names;
mod plain;
mod reading;
#[cfg(test)]
mod soak_tests;

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use belay_fixtures::zoo::Work;

use crate::ops::{Batch, Op, Round, Slot};
use model::{Hands, Tree};
pub use names::Names;

/// The directory in which the workers take turns.
pub const SHARED: &str = "shared";

/// What a sequence may contain, so that both sides can be expected to agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says of one thing whether it may occur")]
pub struct Scope {
    /// All hard links of a file are one inode to the kernel. If not, further links get no data
    /// through them: the page caches of two such links know nothing of each other.
    pub links_are_one: bool,
    /// `renameat2` flags and `fallocate` modes, which not all daemons know and a plain directory
    /// does.
    pub special_modes: bool,
    /// Seeks to data and holes, and ranges that are made zeros: what two stores need not have in
    /// common.
    pub finds_holes: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Removal of what a directory has while it is listed.
    pub purges: bool,
    /// Files opened for writing alone. With a write-back cache the kernel must read what it
    /// changes, which `passthrough_ll` forgets for files that it creates.
    pub write_only: bool,
    /// Allocation of space behind the end of a file, which inodes of ext2 and ext3 have no place
    /// for.
    pub beyond_ends: bool,
    /// Everything, or nothing but what works on whole files that are not open (see [`plain`]), or
    /// nothing but reading (see [`reading`]).
    pub work: Work,
}

/// How long the parts of a round are.
const OWN: usize = 120;
const TURNS: usize = 6;
const TURN: usize = 8;

/// Slots for the worker's own tree come first, those for the shared one after them.
const OWN_FILES: std::ops::Range<Slot> = 0..6;
const SHARED_FILES: std::ops::Range<Slot> = 6..10;
const OWN_STREAMS: std::ops::Range<Slot> = 0..2;
const SHARED_STREAMS: std::ops::Range<Slot> = 2..3;

/// The generator of one sequence.
pub struct Generator {
    rng: ChaCha12Rng,
    scope: Scope,
    own: Vec<(Tree, Hands)>,
    shared: Tree,
    shared_hands: Vec<Hands>,
}

impl Generator {
    /// The sequence that a seed stands for, for so many workers. `names`: what is there already,
    /// which is all that there is to be read where nothing can be made.
    pub fn new(seed: u64, workers: usize, scope: Scope, names: &Names) -> Self {
        let tree = |top: &str| match scope.work {
            Work::Read => Tree::of_names(names),
            Work::All | Work::WholeFiles => Tree::new(top),
        };
        Self {
            rng: ChaCha12Rng::seed_from_u64(seed),
            scope,
            own: (0..workers)
                .map(|w| (tree(&format!("w{w}")), Hands::new(OWN_FILES, OWN_STREAMS)))
                .collect(),
            shared: tree(SHARED),
            shared_hands: (0..workers).map(|_| Hands::new(SHARED_FILES, SHARED_STREAMS)).collect(),
        }
    }

    /// How many names are believed to exist.
    #[cfg(test)]
    fn names(&self) -> usize {
        self.own.iter().map(|(tree, _)| tree).chain([&self.shared]).map(Tree::len).sum()
    }

    /// What comes before the first round: the directories.
    pub fn prologue(&self) -> Round {
        if self.scope.work == Work::Read {
            return Round { own: Vec::new(), shared: Vec::new() };
        }
        let dir = |path: &str| Op::Mkdir { path: path.to_owned(), mode: 0o755 };
        let own = self
            .own
            .iter()
            .enumerate()
            .map(|(worker, (tree, _))| Batch { worker, ops: vec![dir(tree.top())] });
        Round { own: own.collect(), shared: vec![Batch { worker: 0, ops: vec![dir(SHARED)] }] }
    }

    /// The next piece of the sequence.
    pub fn round(&mut self) -> Round {
        let mut own = Vec::with_capacity(self.own.len());
        for (worker, (tree, hands)) in self.own.iter_mut().enumerate() {
            let mut ctx = menu::Context { rng: &mut self.rng, tree, hands, scope: self.scope };
            own.push(Batch { worker, ops: (0..OWN).map(|_| ctx.operation()).collect() });
        }
        let workers: Vec<usize> = (0..self.own.len()).collect();
        let mut shared = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            let worker = *workers.choose(&mut self.rng).unwrap_or(&0);
            let Some(hands) = self.shared_hands.get_mut(worker) else {
                break;
            };
            let count = self.rng.random_range(1..=TURN);
            let mut ctx = menu::Context {
                rng: &mut self.rng,
                tree: &mut self.shared,
                hands,
                scope: self.scope,
            };
            shared.push(Batch { worker, ops: (0..count).map(|_| ctx.operation()).collect() });
        }
        Round { own, shared }
    }

    /// What comes after the last round: every open file is looked at and closed, every listing
    /// finished.
    pub fn epilogue(&self) -> Round {
        let batch =
            |(worker, files, streams): (usize, std::ops::Range<Slot>, std::ops::Range<Slot>)| {
                let mut ops: Vec<Op> = streams.map(|slot| Op::DirRest { slot }).collect();
                for slot in files {
                    ops.extend([
                        Op::Fstat { slot },
                        Op::Pread { slot, off: 0, len: 1 << 20 },
                        Op::Close { slot },
                    ]);
                }
                Batch { worker, ops }
            };
        let workers = 0..self.own.len();
        Round {
            own: workers.clone().map(|w| batch((w, OWN_FILES, OWN_STREAMS))).collect(),
            shared: workers.map(|w| batch((w, SHARED_FILES, SHARED_STREAMS))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    pub(super) const ALL: Scope = Scope {
        links_are_one: true,
        special_modes: true,
        finds_holes: true,
        xattrs: true,
        purges: true,
        write_only: true,
        beyond_ends: true,
        work: Work::All,
    };

    fn names() -> Names {
        let name = |name: &str| name.to_owned();
        Names {
            files: vec![name("f0"), name("d0/f1")],
            dirs: vec![name("d0")],
            links: vec![name("s0")],
        }
    }

    fn rounds(seed: u64, count: usize, scope: Scope) -> Vec<Round> {
        let mut generator = Generator::new(seed, 3, scope, &names());
        (0..count).map(|_| generator.round()).collect()
    }

    fn ops(rounds: &[Round]) -> impl Iterator<Item = &Op> {
        rounds.iter().flat_map(|r| r.own.iter().chain(&r.shared)).flat_map(|b| &b.ops)
    }

    #[test]
    fn a_seed_is_a_sequence() {
        assert_eq!(rounds(5, 20, ALL), rounds(5, 20, ALL));
        assert_eq!(
            rounds(5, 20, ALL)[..7],
            rounds(5, 7, ALL)[..],
            "a longer run begins like a shorter one"
        );
        assert_ne!(rounds(5, 20, ALL), rounds(6, 20, ALL));
    }

    fn name(op: &Op) -> String {
        format!("{op:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
    }

    #[test]
    fn every_operation_occurs() {
        let rounds = rounds(1, 60, ALL);
        let names: HashSet<String> = ops(&rounds).map(name).collect();
        assert_eq!(names.len(), 42, "{names:?}");
    }

    #[test]
    fn whole_files_are_never_open() {
        let rounds = rounds(1, 60, Scope { work: Work::WholeFiles, ..ALL });
        let names: HashSet<String> = ops(&rounds).map(name).collect();
        assert_eq!(names.len(), 16, "{names:?}");
        for op in ops(&rounds) {
            let ends =
                |path: &str, letter| path.rsplit('/').next().unwrap_or(path).starts_with(letter);
            match op {
                Op::Open { .. } | Op::Link { .. } | Op::Symlink { .. } => panic!("{op:?}"),
                Op::Rename { from, to, .. } => assert!(ends(from, 'f') && ends(to, 'f'), "{op:?}"),
                Op::Fill { count, .. } => assert!(*count <= 60, "{op:?}"),
                _ => {}
            }
        }
    }

    #[test]
    fn reading_changes_nothing() {
        let rounds = rounds(1, 60, Scope { work: Work::Read, ..ALL });
        let mut seen = HashSet::new();
        for op in ops(&rounds) {
            seen.insert(name(op));
            assert!(!op.changes(), "{op:?}");
        }
        assert_eq!(seen.len(), 18, "{seen:?}");
    }

    #[test]
    fn space_beyond_ends_is_left_out_on_demand() {
        let modes = |beyond_ends| -> HashSet<u32> {
            ops(&rounds(1, 60, Scope { beyond_ends, ..ALL }))
                .filter_map(
                    |op| if let Op::Fallocate { mode, .. } = op { Some(*mode) } else { None },
                )
                .collect()
        };
        assert_eq!(modes(true), HashSet::from([0, 1, 3, 0x10]));
        assert_eq!(modes(false), HashSet::from([0, 3, 0x10]));
    }

    #[test]
    fn workers_keep_to_their_trees() {
        for round in rounds(2, 30, ALL) {
            for batch in &round.own {
                let text = format!("{:?}", batch.ops);
                assert!(!text.contains("\"shared/"));
                for other in (0..3).filter(|w| *w != batch.worker) {
                    assert!(!text.contains(&format!("\"w{other}/")));
                }
            }
        }
    }

    #[test]
    fn the_scope_is_kept() {
        let scope = Scope { links_are_one: false, special_modes: false, finds_holes: false, ..ALL };
        for op in ops(&rounds(3, 60, scope)) {
            match op {
                Op::Rename { how, .. } => assert_eq!(*how, crate::ops::RenameHow::Plain),
                Op::Fallocate { mode, .. } => assert_eq!(*mode, 0),
                Op::Link { to, .. } => {
                    assert!(to.rsplit('/').next().unwrap_or_default().starts_with('h'))
                }
                Op::Open { path, .. } => {
                    assert!(!path.rsplit('/').next().unwrap_or_default().starts_with('h'))
                }
                _ => {}
            }
        }
    }
}
