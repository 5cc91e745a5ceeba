//! The namespace module compared with a plain directory.

use belay_posix::namespace::Rename;
use belay_volume_sim::posix::{Act, Compared, random_act};
use belay_volume_sim::{Random, seeds};
use rand::{Rng, SeedableRng};

/// What is done in a run.
const ACTS: usize = 1500;

#[test]
fn a_namespace_is_as_a_plain_directory() {
    let seeds = seeds(12);
    let (mut deaths, mut done) = (0, 0);
    for seed in seeds.clone() {
        let or_fail = |act: usize, done: Result<(), String>| {
            done.unwrap_or_else(|why| {
                panic!("seed {seed}, act {act}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test posix")
            });
        };
        // tmpfs: nothing of the host's file systems comes in.
        let oracle = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut compared = Compared::new(seed, oracle.path()).unwrap();
        let mut random = Random::seed_from_u64(seed);
        for act in 0..ACTS {
            or_fail(act, compared.act(&random_act(&mut random)));
            if random.random_range(0..40) == 0 {
                or_fail(act, compared.checkpoint());
            }
            if random.random_range(0..80) == 0 {
                or_fail(act, compared.compare());
            }
            if random.random_range(0..200) == 0 {
                or_fail(act, compared.check());
            }
            if random.random_range(0..300) == 0 {
                or_fail(act, compared.remount());
            }
        }
        or_fail(ACTS, compared.compare());
        or_fail(ACTS, compared.check());
        or_fail(ACTS, compared.compare());
        deaths += compared.deaths;
        done += compared.done_by_the_dead;
    }
    println!("{deaths} deaths, {done} after what counts");
    assert!(seeds.end - seeds.start == 1 || deaths > 300 && done > 20);
}

#[test]
fn directories_go_deep() {
    let oracle = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut compared = Compared::new(1, oracle.path()).unwrap();
    let deep = |levels: usize| vec!["d"; levels].join("/");
    for levels in 1..=200 {
        compared.act(&Act::Mkdir(deep(levels))).unwrap();
    }
    let below = |levels: usize, name: &str| format!("{}/{name}", deep(levels));
    for act in [
        // Into itself, and onto what is above.
        Act::Rename("d".to_owned(), below(200, "x"), Rename::Replace),
        Act::Rename(deep(200), deep(3), Rename::Replace),
        Act::Rename(deep(200), deep(3), Rename::Exchange),
        Act::Rename("d".to_owned(), "d".to_owned(), Rename::Replace),
        Act::Rename(deep(100), "up".to_owned(), Rename::Replace),
        Act::Rename("d".to_owned(), format!("up/{}/x", deep(50)), Rename::Replace),
        Act::Rename("up".to_owned(), deep(60), Rename::Replace),
        Act::Rmdir(deep(3)),
        Act::Create(below(99, "file")),
    ] {
        compared.act(&act).unwrap();
        compared.compare().unwrap();
    }
}
