//! Cache, logical layer and stores in the simulation: whichever of them dies, and wherever, nothing
//! that was published is lost, and nothing happens twice.

use belay_cache::Capacity;
use belay_volume_sim::stack::Stack;
use belay_volume_sim::{Random, random_capacity, seeds};
use rand::{Rng, SeedableRng};

#[test]
fn nothing_is_lost_whoever_dies() {
    let seeds = seeds(100);
    let mut all = Vec::new();
    for seed in seeds.clone() {
        let mut random = Random::seed_from_u64(seed);
        let capacity = random_capacity(&mut random);
        let stores = random.random_range(1..3);
        let mut stack = Stack::new(seed, stores, capacity).unwrap();
        stack.run(200).unwrap_or_else(|why| {
            panic!("seed {seed}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test stack")
        });
        all.push(stack.outcome);
    }
    let sum =
        |field: fn(&belay_volume_sim::stack::Outcome) -> u64| all.iter().map(field).sum::<u64>();
    println!(
        "{} transactions, {} checkpoints",
        sum(|one| one.transactions),
        sum(|one| one.checkpoints)
    );
    println!(
        "deaths: module {} ({} had published), cache {}, lower {} ({} at the very end), power failures {}",
        sum(|one| one.module_deaths),
        sum(|one| one.published_by_the_dead),
        sum(|one| one.cache_deaths),
        sum(|one| one.lower_deaths),
        sum(|one| one.at_the_end),
        sum(|one| one.power_failures)
    );
    println!("{} syncs, {} promises kept", sum(|one| one.syncs), sum(|one| one.promises_kept));
    if seeds.end - seeds.start > 1 {
        assert!(sum(|one| one.published_by_the_dead) > 10);
        assert!(sum(|one| one.at_the_end) > 10);
        assert!(sum(|one| one.promises_kept) > 50);
        assert!(sum(|one| one.lower_deaths) > 50 && sum(|one| one.power_failures) > 20);
    }
}

#[test]
fn a_memory_that_is_scribbled_over_brings_nobody_down() {
    for seed in 0..300 {
        let capacity = Capacity { frames: 200, slots: 60 };
        let mut stack = Stack::new(seed, 1, capacity).unwrap();
        stack.run_some(40).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let flips = 1 + seed as usize % 40;
        stack.scribble(flips).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}
