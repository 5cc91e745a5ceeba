//! Death at every store: what is replayed gives what was acknowledged, on the tree of the last
//! checkpoint.
#![allow(missing_docs)]

mod common;

use belay_oplog::Capacity;
use common::world::{Op, Seen, World, crowded, op};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

type Steps = Vec<(Op, Option<u16>)>;

fn steps(op: impl Strategy<Value = Op>, length: usize) -> impl Strategy<Value = Steps> {
    prop::collection::vec((op, prop::option::weighted(0.08, any::<u16>())), 1..length)
}

fn live(capacity: Capacity, steps: &[(Op, Option<u16>)]) -> Seen {
    let mut world = World::new(capacity);
    for dir in [0, 0, 1] {
        world.step(&Op::Make { dir, name: dir, kind: 3 - dir }, None);
    }
    for (op, die) in steps {
        world.step(op, *die);
    }
    world.seen
}

const ROOMY: Capacity = Capacity { record_bytes: 24 << 10, pages: 48 };
/// Runs out of pages.
const TIGHT: Capacity = Capacity { record_bytes: 4 << 10, pages: 6 };
/// Runs out of room for records, and writes them anew time and again.
const CROWDED: Capacity = Capacity { record_bytes: 4 << 10, pages: 24 };

proptest! {
    #![proptest_config(belay_seeds::cases!(256))]

    #[test]
    fn every_death_leaves_what_was_acknowledged(steps in steps(op(), 48)) {
        live(ROOMY, &steps);
    }

    #[test]
    fn also_where_there_is_no_room(steps in steps(op(), 96)) {
        live(TIGHT, &steps);
    }

    #[test]
    fn also_where_records_are_written_anew(steps in steps(crowded(), 96)) {
        live(CROWDED, &steps);
    }
}

/// A link's answer tells the file's mode: the write that took the setuid bit before it is not
/// dropped for one after it.
#[test]
fn what_a_link_shows_is_issued_before_it() {
    let write = |seed| Op::Write { file: 0, at: 0, length: 8, seed, kill: true };
    let steps = [
        Op::Mode { node: 0, setuid: true },
        write(1),
        Op::Link { file: 0, dir: 0, name: 3 },
        write(2),
    ];
    let seen = live(ROOMY, &steps.map(|op| (op, None)));
    assert!(seen.joined == 0 && seen.robbed == 0, "{seen:?}");
}

/// What comes about in the tests above, in 40 sequences of their kind.
fn sum(capacity: Capacity, steps: &impl Strategy<Value = Steps>) -> Seen {
    let mut runner = TestRunner::deterministic();
    let mut all = Seen::default();
    for _ in 0..40 {
        let steps = steps.new_tree(&mut runner).expect("a sequence").current();
        let seen = live(capacity, &steps);
        all.deaths += seen.deaths;
        all.successors += seen.successors;
        all.checkpoints += seen.checkpoints;
        all.retracted += seen.retracted;
        all.no_page += seen.no_page;
        all.full += seen.full;
        all.compactions += seen.compactions;
        all.notable += seen.notable;
        all.joined += seen.joined;
        all.robbed += seen.robbed;
        all.records += seen.records;
    }
    println!("{all:?}");
    assert!(all.deaths > 10_000 && all.successors > 50 && all.checkpoints > 20, "{all:?}");
    assert!(all.retracted > 100 && all.joined > 100 && all.notable > 100, "{all:?}");
    all
}

/// That what the tests above are about comes about in them.
#[test]
fn everything_happens() {
    let roomy = sum(ROOMY, &steps(op(), 80));
    assert!(roomy.robbed > 10, "{roomy:?}");
    let tight = sum(TIGHT, &steps(op(), 80));
    assert!(tight.robbed > 10 && tight.no_page > 20, "{tight:?}");
    let crowded = sum(CROWDED, &steps(crowded(), 96));
    assert!(crowded.full > 20 && crowded.compactions > 20, "{crowded:?}");
}
