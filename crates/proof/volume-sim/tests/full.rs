//! Volumes that are full: what was published always finds room, what takes away does, and what it
//! frees can be used again.

use belay_cache::Capacity;
use belay_logical::Logical;
use belay_object::{Class, ObjectId, Operation, credit};
use belay_store::Parameters;
use belay_volume_sim::disk::SimDisk;
use belay_volume_sim::stack::Stack;
use belay_volume_sim::stuffed::Stuffed;
use belay_volume_sim::{Random, random_capacity, seeds};
use rand::{Rng, SeedableRng};

#[test]
fn what_is_published_finds_room_whoever_dies() {
    let seeds = seeds(150);
    let (mut refusals, mut deaths, mut failures) = (0, 0, 0);
    let (mut taken, mut paid) = (0, 0);
    for seed in seeds.clone() {
        let mut random = Random::seed_from_u64(seed);
        let capacity = random_capacity(&mut random);
        let stores = random.random_range(1..3);
        let blocks = random.random_range(300..700);
        let mut stack = Stack::with(seed, stores, capacity, blocks).unwrap();
        let or_fail = |done: Result<(), String>| {
            done.unwrap_or_else(|why| {
                panic!("seed {seed}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test full -- what_is_published")
            });
        };
        or_fail(stack.fill_but(random.random_range(0..150)));
        or_fail(stack.run(300));
        let outcome = stack.outcome;
        let filled = stack.empty_and_fill().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let (before, pages, after) = filled;
        // What is said to be there can be written, but for what pages take besides themselves, and
        // for halves of pairs.
        assert!(pages + before / 64 + 56 >= before, "seed {seed}: {pages} pages of {before}");
        assert!(before == after, "seed {seed}: {before} before, {after} in the end");
        refusals += outcome.refusals;
        deaths += outcome.module_deaths + outcome.cache_deaths + outcome.lower_deaths;
        failures += outcome.power_failures;
        (taken, paid) = (taken + outcome.taken, paid + outcome.paid);
    }
    println!("{refusals} refusals, {deaths} deaths, {failures} power failures");
    println!("{taken} blocks were taken of {paid} that were paid for");
    assert!(seeds.end - seeds.start == 1 || refusals > 500 && deaths > 500 && failures > 100);
}

/// What a transaction is said to take at most is no less than what the stores take for it.
#[test]
fn no_more_is_taken_than_was_paid_for() {
    let (mut taken, mut paid) = (0, 0);
    for seed in seeds(60) {
        let done = belay_volume_sim::paid::run(seed, 400).unwrap_or_else(|why| {
            panic!("seed {seed}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test full -- no_more")
        });
        (taken, paid) = (taken + done.0, paid + done.1);
    }
    println!("{taken} blocks were taken of {paid} that were paid for");
}

/// The same for the first object with a number, however large that is.
#[test]
fn a_new_object_takes_no_more_than_its_number_tells() {
    for bits in 0..38 {
        let disk = SimDisk::new(2048);
        let parameters = Parameters::default().small();
        let mut volume = Logical::format([9; 16], vec![([1; 16], &disk)], parameters).unwrap();
        for number in [(1 << bits) - 1, 1 << bits] {
            let object = ObjectId(number);
            let create = Operation::Create { object, class: Class::Data, attributes: b"" };
            volume.apply(&create).unwrap();
            let taken: Vec<(u64, u64)> = volume.stores().map(|store| store.taken()).collect();
            let most = credit::creation(object);
            assert!(taken == [(0, taken[0].1)] && taken[0].1 <= most.pairs, "{object}: {taken:?}");
            volume.checkpoint().unwrap();
        }
    }
}

/// A volume is filled by files, and emptied, again and again: it is filled as much each time, and
/// nothing is lost on the way.
#[test]
fn a_full_volume_can_be_emptied_again_and_again() {
    for (seed, blocks) in [(0, 800), (1, 3000), (2, 5000)] {
        let disk = SimDisk::new(blocks);
        let capacity = Capacity { frames: 300, slots: 100 };
        let mut volume = Stuffed::new(&disk, capacity).unwrap();
        let mut first = None;
        for round in 0..20 {
            let done = volume.round(seed).unwrap_or_else(|why| {
                panic!("{blocks} blocks, round {round}: {why}");
            });
            let Some(before) = first else {
                println!("{blocks} blocks: {done:?}");
                first = Some(done);
                continue;
            };
            assert_eq!(done.empty.free, before.empty.free, "{blocks} blocks, round {round}");
            let all = before.empty.free - before.empty.reserve();
            let bytes = done.bytes + all * 4096 / 20;
            assert!(bytes >= before.bytes, "{done:?}, not {before:?}");
        }
    }
}
