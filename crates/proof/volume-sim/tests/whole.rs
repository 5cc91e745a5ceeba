//! All layers of a volume in the simulation, with files and directories: whatever happens, it is as
//! a plain directory.

use belay_cache::Capacity;
use belay_volume_sim::outcome::Outcome;
use belay_volume_sim::whole::{Whole, every};
use belay_volume_sim::{Random, seeds};
use rand::{Rng, SeedableRng};

fn all(test: &str, usual: u64, run: impl Fn(u64) -> Result<Outcome, String>) -> (Outcome, bool) {
    let seeds = seeds(usual);
    let mut all = Outcome::default();
    for seed in seeds.clone() {
        all.join(&run(seed).unwrap_or_else(|why| {
            panic!("seed {seed}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test whole -- {test}")
        }));
    }
    println!("{all:#?}");
    (all, seeds.end - seeds.start > 1)
}

#[test]
fn it_is_as_a_plain_directory_whatever_happens() {
    let (all, many) = all("it_is_as", 40, |seed| {
        let mut random = Random::seed_from_u64(!seed);
        let capacity = Capacity {
            frames: [160, 800][random.random_range(0..2)],
            slots: [8, 30, 200][random.random_range(0..3)],
        };
        let mut volume = Whole::new(seed, capacity, None)?;
        volume.run(8)?;
        Ok(volume.outcome)
    });
    if many {
        assert!(all.module_deaths > 50 && all.answered_by_the_dead > 5 && all.cache_deaths > 20);
        assert!(all.store_deaths > 20 && all.power_failures > 20 && all.promises_kept > 5);
        assert!(all.faults.len() == 6 && all.troubles.len() == 5 && all.disk_errors > 20);
        assert!(all.done_in_stalls > 10 && all.damaged_reads > 20 && all.found_damaged > 5);
    }
}

#[test]
fn a_short_history_is_cut_at_every_write() {
    all("a_short_history_is_cut", 2, every::every_write);
}

#[test]
fn somebody_dies_at_every_store_of_a_short_history() {
    all("somebody_dies", 1, every::every_store);
}
