//! The logical layer in the simulation: several stores, which agree on a checkpoint whenever their machine or their process ends.

use belay_volume_sim::logical::Volume;
use belay_volume_sim::{Random, seeds};
use rand::{Rng, SeedableRng};

#[test]
fn stores_agree_on_a_checkpoint_wherever_they_end() {
    let seeds = seeds(200);
    let (mut operations, mut rolled_back) = (0, 0);
    for seed in seeds.clone() {
        let or_fail = |done: Result<(), String>| {
            done.unwrap_or_else(|why| {
                panic!("seed {seed}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test logical")
            });
        };
        let mut random = Random::seed_from_u64(seed);
        let stores = random.random_range(1..4);
        let mut volume = Volume::new(seed, stores, 6000).unwrap();
        for _ in 0..5 {
            let most = [60, 1200][random.random_range(0..2)];
            let end = volume.power().steps() + random.random_range(1..most);
            volume.power().end_at(Some(end));
            or_fail(volume.life(random.random_range(1..150)));
            volume.end(random.random());
            or_fail(volume.reopen());
        }
        operations += volume.operations;
        rolled_back += volume.rolled_back;
    }
    println!("{operations} operations, {rolled_back} times the checkpoint before");
    assert!(seeds.end - seeds.start == 1 || operations > 1000 && rolled_back > 3);
}
