//! The logical layer in the simulation: several stores, which agree on a checkpoint whenever their
//! machine or their process ends.

use belay_logical::Logical;
use belay_object::{Class, ObjectId, Operation, PAGE};
use belay_store::{DataMode, Parameters};
use belay_volume_sim::disk::{Power, SimDisk};
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

/// A volume and a copy of it go on apart from each other, and are mixed then: that is found before
/// anything is written, if both have taken a checkpoint.
#[test]
fn stores_of_copies_that_went_different_ways_are_refused() {
    let disks = [SimDisk::new(2000), SimDisk::new(2000)];
    let stores = [1, 2].map(|store| [store; 16]).into_iter().zip(&disks).collect();
    drop(Logical::format([9; 16], stores, Parameters::default().small()).unwrap());
    let go_on = |branch: u64, checkpoints: usize| {
        let copies = disks.each_ref().map(|disk| disk.copy(&Power::default()));
        let mut volume = Logical::open(copies.iter().collect::<Vec<_>>()).unwrap();
        volume.begin_branch(branch);
        for _ in 0..checkpoints {
            volume.checkpoint().unwrap();
        }
        drop(volume);
        copies
    };
    for (one, other) in [(1, 1), (1, 2), (2, 2), (3, 2)] {
        let ([first, _], [_, second]) = (go_on(1, one), go_on(2, other));
        let before = [first.power().steps(), second.power().steps()];
        let why = Logical::open(vec![&second, &first]).unwrap_err().to_string();
        assert!(why.contains("gone different ways"), "{one}, {other}: {why}");
        assert_eq!(before, [first.power().steps(), second.power().steps()], "nothing is written");
        let [first, second] = go_on(1, one);
        assert!(Logical::open(vec![&first, &second]).is_ok(), "those of one belong together");
    }
}

/// A file takes all of its store: nothing more can be written, whatever the other one has.
#[test]
fn what_is_available_is_what_the_fullest_store_has() {
    let disks = [SimDisk::new(4000), SimDisk::new(2000)];
    let stores = [1, 2].map(|store| [store; 16]).into_iter().zip(&disks).collect();
    let parameters = Parameters::default().small();
    let mut volume = Logical::format([9; 16], stores, parameters).unwrap();
    let before = volume.room().unwrap();
    assert!(before.stores == 2 && before.least * 2 < before.free, "two sizes: {before:?}");
    let object = ObjectId(1);
    volume.apply(&Operation::Create { object, class: Class::Data, attributes: b"" }).unwrap();
    let mut pages = 0;
    while volume.apply(&Operation::Write { object, page: pages, data: &[1; PAGE] }).is_ok() {
        pages += 1;
    }
    let after = volume.room().unwrap();
    assert!(pages > 1000 && after.free > 1000, "{pages}: {after:?}");
    assert!(after.least < 100 && after.for_users() < 200, "{after:?}");
}

/// One store of two cannot tell yet what was overwritten on it: nothing is changed on the other one
/// either, as all of it is opened again.
#[test]
fn nothing_is_changed_beside_a_store_that_cannot_tell_what_was_overwritten() {
    let disks = [SimDisk::new(2000), SimDisk::new(2000)];
    let parameters = Parameters { data: DataMode::InPlace, ..Parameters::default().small() };
    let stores = [1, 2].map(|store| [store; 16]).into_iter().zip(&disks).collect();
    let mut volume = Logical::format([9; 16], stores, parameters).unwrap();
    for object in (1..9).map(ObjectId) {
        let class = Class::Data;
        volume.apply(&Operation::Create { object, class, attributes: b"" }).unwrap();
        volume.apply(&Operation::Write { object, page: 0, data: &[1; PAGE] }).unwrap();
        volume.apply(&Operation::SetSize { object, size: PAGE as u64 }).unwrap();
    }
    volume.checkpoint().unwrap();
    for object in (1..9).map(ObjectId) {
        volume.apply(&Operation::Write { object, page: 0, data: &[2; PAGE] }).unwrap();
    }
    // The logs are durable, and the blocks are overwritten: the roots are not there.
    volume.begin_checkpoint().unwrap();
    drop(volume);
    let mut unresolved = 0;
    for after in 0..200 {
        let disks = disks.each_ref().map(|disk| disk.copy(&Power::default()));
        disks[1].troubles().fail_one_read(after);
        let opened = Logical::open(disks.iter().collect::<Vec<_>>());
        disks[1].troubles().end();
        let Ok(mut volume) = opened else { continue };
        if !volume.is_unresolved() {
            continue;
        }
        unresolved += 1;
        for object in (1..9).map(ObjectId) {
            let written = volume.apply(&Operation::Write { object, page: 0, data: &[3; PAGE] });
            assert!(written.unwrap_err().may_pass(), "read {after}");
        }
        assert!(volume.set_upto(7).is_err() && volume.checkpoint().is_err());
    }
    assert!(unresolved > 2, "{unresolved}");
}
