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

/// A file that was renamed over another one is as whole as that was when a power failure follows
/// the next sync of anything.
#[test]
fn what_is_renamed_over_a_file_has_its_data() {
    use belay_cache::intent::replay;
    use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
    use belay_object::{Lower, ObjectId, PAGE};
    use belay_posix::{Caller, Memo, Namespace, ROOT, View};
    use belay_volume_sim::hostile::objects::Objects;
    use belay_volume_sim::memory::SimMemory;
    use std::convert::Infallible;
    const FILE: u32 = 0o100_644;
    let layout = Layout::new(Capacity { frames: 200, slots: 40 });
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    let mut below = Objects::default();
    shared.initialize(0, 0, &below.room().unwrap());
    let cleaner = Cleaner::new(shared.clone());
    let mut publisher = Publisher::attach::<Infallible>(shared, 1).unwrap();
    let mut memo = Memo::default();
    let mut ask =
        |below: &mut Objects,
         act: &dyn Fn(&mut Namespace<'_, '_, SimMemory, Objects>) -> ObjectId| {
            let mut view = View::new(&mut publisher, below);
            let object = act(&mut Namespace::new(&mut view, Caller::default(), &mut memo));
            view.commit(2, b"").unwrap();
            object
        };
    ask(&mut below, &|namespace| {
        namespace.format(belay_volume_sim::SECRET).unwrap();
        ROOT
    });
    let make = |namespace: &mut Namespace<'_, '_, _, _>, name: &[u8], byte: u8| {
        let object = namespace.make(ROOT, name, FILE, 0).unwrap().object;
        namespace.write(object, Some(0), &[byte; 3 * PAGE]).unwrap();
        object
    };
    for (name, byte) in [(b"conf", 1), (b"else", 2)] {
        ask(&mut below, &|namespace| make(namespace, name, byte));
    }
    cleaner.checkpoint(&mut below).unwrap();
    let new = ask(&mut below, &|namespace| make(namespace, b"temp", 3));
    ask(&mut below, &|namespace| {
        namespace.rename((ROOT, b"temp"), (ROOT, b"conf"), Rename::Replace).unwrap();
        new
    });
    let other = ask(&mut below, &|namespace| make(namespace, b"other", 4));
    let synced = ask(&mut below, &|namespace| namespace.lookup(ROOT, b"else").unwrap().object);
    assert!(cleaner.sync(&mut below, &[synced]).unwrap());
    // The power fails here.
    let mut after = below.clone();
    replay(&mut after).unwrap();
    let read = |after: &mut Objects, object| {
        let mut content = vec![9; 3 * PAGE];
        after.read(object, 0, &mut content).unwrap();
        content
    };
    assert!(read(&mut after, new) == [3; 3 * PAGE]);
    // Nobody has asked for that one.
    assert!(read(&mut after, other) == [0; 3 * PAGE]);
}
