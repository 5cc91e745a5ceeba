//! Death of the daemon at every store: its successor starts on the last checkpoint, and what the
//! committer was given does not change.
#![allow(missing_docs)]

mod common;

use common::{MOST, Op, World, op};
use proptest::prelude::*;

/// Runs `op` in a daemon that dies at every one of its stores in turn; `again`, some of the
/// successors die in their start as well.
fn all_deaths(world: &World, op: &Op) {
    let model = &world.model;
    let commitment = world.commitment();
    world.memory.mark();
    let (after, stores) = world.memory.process(usize::MAX, || world.act(op));
    let after = after.unwrap();
    world.memory.rewind();
    let start = || world.overlay().discard_current(model.disk.len() as u64).unwrap();
    for at in 0..stores {
        let (lived, _) = world.memory.process(at, || world.act(op));
        assert_eq!(lived, None);
        let epoch = world.overlay().epoch().unwrap();
        if epoch == model.epoch {
            assert_eq!(world.commitment(), commitment, "death {at} of {stores} in {op:?}");
        }
        if at % 3 == 0 {
            world.memory.process(at % 7, start);
        }
        start();
        let expected = if epoch == model.epoch { &model.checkpoint } else { &after.checkpoint };
        assert!(world.view(&model.disk) == *expected, "death {at} of {stores} in {op:?}");
        assert_eq!(world.overlay().epoch(), Ok(epoch));
        assert_eq!(world.overlay().is_dirty(), Ok(false));
        assert_eq!(world.overlay().can_seal(), Ok(world.commitment().is_none()));
        // It can go on from there.
        let (write, image) =
            ([0xab; 700], |at, out: &mut [u8]| common::pread(&model.disk, at, out));
        assert_eq!(world.overlay().write(300, &write, image), Ok(700));
        let mut expected = expected.clone();
        expected.resize(expected.len().max(1000), 0);
        expected[300..1000].fill(0xab);
        assert!(world.view(&model.disk) == expected);
        world.memory.rewind();
    }
    if matches!(op, Op::Seal) && model.committed {
        assert!(stores > 1, "sealing is more than its last store");
    }
}

fn cases() -> u32 {
    std::env::var("BELAY_SOAK").ok().and_then(|n| n.parse().ok()).unwrap_or(1) * 128
}

proptest! {
    #![proptest_config(belay_seeds::cases!(cases()))]

    #[test]
    fn every_death_leaves_the_checkpoint(
        length in 0..MOST / 2,
        ops in prop::collection::vec((op(900), any::<bool>()), 1..24),
    ) {
        let mut world = World::new(7, length);
        for (op, deaths) in ops {
            if deaths && !matches!(op, Op::Commit(_)) {
                all_deaths(&world, &op);
            }
            world.memory.mark();
            world.model = world.act(&op);
        }
    }
}

#[test]
fn sealing_is_its_last_store() {
    let mut world = World::new(7, 9000);
    for op in [
        Op::Write { at: 700, len: 5000, seed: 1 },
        Op::Length(3000),
        Op::Write { at: 8000, len: 10, seed: 2 },
    ] {
        all_deaths(&world, &op);
        world.model = world.act(&op);
    }
    all_deaths(&world, &Op::Seal);
    world.memory.mark();
    let (_, stores) = world.memory.process(usize::MAX, || world.act(&Op::Seal));
    world.memory.rewind();
    let (lived, _) = world.memory.process(stores - 1, || world.act(&Op::Seal));
    assert_eq!((lived, world.overlay().epoch()), (None, Ok(1)));
    world.memory.rewind();
    world.model = world.act(&Op::Seal);
    let write = Op::Write { at: 600, len: 900, seed: 7 };
    all_deaths(&world, &write);
    world.model = world.act(&write);
    world.model = world.act(&Op::Commit(3));
    all_deaths(&world, &Op::Die);
    all_deaths(&world, &Op::Length(0));
    world.model = world.act(&Op::Commit(usize::MAX));
    all_deaths(&world, &Op::Seal);
}
