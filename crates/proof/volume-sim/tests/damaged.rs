//! Stores with blocks that cannot be read any more: what they held is lost, and all else goes on.

use belay_disk::{BLOCK, Block, ZEROS};
use belay_logical::Logical;
use belay_object::{Class as Kept, ObjectId, Operation};
use belay_store::roles::Role;
use belay_store::{Class, Error, FileId, Parameters, Store};
use belay_volume_sim::disk::{Fault, Power, SimDisk};
use belay_volume_sim::{Random, seeds};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const SMALL: u64 = 4096;

fn made(disk: &SimDisk) -> Store<&SimDisk> {
    let store = [2; 16];
    let identity = belay_store::Identity { volume: [1; 16], store, members: vec![store] };
    Store::format(disk, &identity, Parameters::default().small()).unwrap()
}

fn content(byte: u8) -> Block {
    [byte; BLOCK]
}

/// Damages the block of which that is so.
fn damage(disk: &SimDisk, fault: Fault, is_it: impl Fn(Role) -> bool) -> u64 {
    let mut store = Store::open_last(disk).unwrap();
    let is_current = |block: &u64| {
        let found = store.role_of(*block).unwrap();
        found.is_current(*block) && is_it(found.role)
    };
    let block = disk.written().into_iter().find(is_current).unwrap();
    disk.fault_at(block, fault, &mut Random::seed_from_u64(block)).unwrap();
    block
}

const BAD: [Fault; 2] = [Fault::FlippedBit, Fault::Unreadable];

/// A disk with two files of 600 blocks, of which the first one's block that leads to its blocks
/// from 256 on is damaged.
fn two_files(class: Class, fault: Fault) -> (SimDisk, [FileId; 2]) {
    let disk = SimDisk::new(SMALL);
    let mut store = made(&disk);
    let files = [1, 2].map(|owner| {
        let file = store.create(owner, class, b"").unwrap();
        for number in 0..600 {
            store.write(file, number, &content(owner as u8)).unwrap();
        }
        store.set_size(file, 600 * BLOCK as u64).unwrap();
        file
    });
    store.checkpoint().unwrap();
    let first = files[0];
    damage(&disk, fault, |role| role == Role::Indirect { file: Some(first), first: 256 });
    (disk, files)
}

fn is(store: &mut Store<&SimDisk>, file: FileId, number: u64) -> Option<u8> {
    let mut found = ZEROS;
    match store.read(file, number, &mut found) {
        Ok(()) => {
            assert_eq!(found, content(found[0]));
            Some(found[0])
        }
        Err(why) => {
            assert!(why.is_unreadable(), "{why}");
            None
        }
    }
}

fn is_whole(store: &mut Store<&SimDisk>, file: FileId) {
    assert!((0..600).all(|number| is(store, file, number) == Some(2)));
}

#[test]
fn a_file_with_a_damaged_block_is_removed() {
    for (class, fault) in [Class::Data, Class::Protected]
        .into_iter()
        .flat_map(|class| BAD.map(|fault| (class, fault)))
    {
        let (disk, [file, other]) = two_files(class, fault);
        let mut store = Store::open_last(&disk).unwrap();
        store.delete(file).unwrap();
        store.checkpoint().unwrap();
        let mut store = Store::open_last(&disk).unwrap();
        is_whole(&mut store, other);
        let report = store.check().unwrap();
        assert_eq!(report.findings, vec![]);
        assert!(report.notes.iter().any(|note| note.contains("left over")), "{:?}", report.notes);
    }
}

#[test]
fn a_file_with_a_damaged_block_is_cut_off_and_overwritten() {
    for (class, fault) in [Class::Data, Class::Protected]
        .into_iter()
        .flat_map(|class| BAD.map(|fault| (class, fault)))
    {
        let (disk, [file, other]) = two_files(class, fault);
        let mut store = Store::open_last(&disk).unwrap();
        store.write(file, 300, &content(9)).unwrap();
        store.set_size(file, 400 * BLOCK as u64 + 7).unwrap();
        store.checkpoint().unwrap();
        let mut store = Store::open_last(&disk).unwrap();
        for number in 0..600 {
            let wanted = match number {
                300 => Some(9),
                256..=400 => None,
                401.. => Some(0),
                _ => Some(1),
            };
            assert_eq!(is(&mut store, file, number), wanted, "{number}");
        }
        is_whole(&mut store, other);
        let findings = store.check().unwrap().findings;
        assert!(findings.iter().all(|one| one.file == Some(file)), "{findings:?}");
        assert!(
            findings.iter().any(|one| one.what.contains("144 blocks of it are lost")),
            "{findings:?}"
        );
        // Longer again, what was never there is zeros; and all that is lost is overwritten.
        store.set_size(file, 600 * BLOCK as u64).unwrap();
        assert_eq!(is(&mut store, file, 500), Some(0));
        for number in 256..=400 {
            store.write(file, number, &content(3)).unwrap();
        }
        store.checkpoint().unwrap();
        let mut store = Store::open_last(&disk).unwrap();
        assert_eq!((is(&mut store, file, 256), is(&mut store, file, 400)), (Some(3), Some(3)));
        assert_eq!(store.check().unwrap().findings, vec![]);
    }
}

#[test]
fn a_damaged_page_is_cut_within_and_overwritten() {
    for (class, fault) in [Class::Data, Class::Protected]
        .into_iter()
        .flat_map(|class| BAD.map(|fault| (class, fault)))
    {
        let (disk, [_, file]) = two_files(class, fault);
        for number in [50, 60] {
            damage(&disk, fault, |role| role == Role::Data { file, owner: 2, number });
        }
        let mut store = Store::open_last(&disk).unwrap();
        store.write(file, 50, &content(9)).unwrap();
        store.set_size(file, 60 * BLOCK as u64 + 7).unwrap();
        store.set_size(file, 70 * BLOCK as u64 + 7).unwrap();
        store.checkpoint().unwrap();
        let mut store = Store::open_last(&disk).unwrap();
        let found = [49, 50, 59, 60, 61].map(|number| is(&mut store, file, number));
        assert_eq!(found, [Some(2), Some(9), Some(2), None, Some(0)]);
        store.write(file, 60, &content(8)).unwrap();
        store.checkpoint().unwrap();
        let mut store = Store::open_last(&disk).unwrap();
        let report = store.check().unwrap();
        assert!(!report.has_given_up, "nothing is left over");
        let counts = report.findings.iter().any(|one| one.what.contains("counts"));
        assert!(!counts, "{report:?}");
        assert_eq!(is(&mut Store::open_last(&disk).unwrap(), file, 60), Some(8));
    }
}

/// Whatever is damaged: files that can be found are changed and removed, new ones are made, and
/// checkpoints are taken. What is read is right, or an error.
#[test]
fn whatever_is_damaged_checkpoints_are_taken() {
    for seed in seeds(100) {
        let mut random = Random::seed_from_u64(seed);
        let again = format!(
            "seed {seed}, again: BELAY_SEED={seed} cargo test -p belay-volume-sim --test damaged"
        );
        let disk = SimDisk::new(SMALL);
        let mut store = made(&disk);
        let mut model: BTreeMap<FileId, (u64, BTreeMap<u64, u8>)> = BTreeMap::new();
        let create = |store: &mut Store<&SimDisk>, random: &mut Random| {
            let class = if random.random() { Class::Data } else { Class::Protected };
            store.create(1, class, b"")
        };
        for _ in 0..random.random_range(1..60) {
            model.entry(create(&mut store, &mut random).unwrap()).or_default();
        }
        for round in 0..6 {
            for _ in 0..random.random_range(1..40) {
                if model.is_empty() {
                    break;
                }
                let file = *model.keys().nth(random.random_range(0..model.len())).unwrap();
                let known = model.get_mut(&file).unwrap();
                let page = BLOCK as u64;
                let at = [4, 40, 600][random.random_range(0..3)];
                let at = random.random_range(0..at);
                let count = random.random_range(1..20);
                let done = match random.random_range(0..10) {
                    0..5 => {
                        let byte = random.random_range(1..=255);
                        let pages = vec![content(byte); count as usize];
                        let written = store.write(file, at, pages.as_flattened()).and_then(|()| {
                            if known.0 < at + count {
                                known.0 = at + count;
                                store.set_size(file, known.0 * page)?;
                            }
                            Ok(())
                        });
                        known.1.extend((at..at + count).map(|number| (number, byte)));
                        written
                    }
                    5 => {
                        known.0 = at;
                        known.1.retain(|number, _| *number < at);
                        store.set_size(file, at * page)
                    }
                    6 => {
                        known.1.retain(|number, _| !(at..at + count).contains(number));
                        store.punch(file, at, count)
                    }
                    7 => {
                        model.remove(&file);
                        store.delete(file)
                    }
                    _ => match create(&mut store, &mut random) {
                        Ok(new) => {
                            model.entry(new).or_default();
                            Ok(())
                        }
                        Err(why) => {
                            assert!(matches!(why, Error::NoSpace), "{again}: {why}");
                            Ok(())
                        }
                    },
                };
                match done {
                    Ok(()) => {}
                    // Its inode cannot be read, or there is no room: nobody looks at it any more.
                    Err(why) if why.is_unreadable() || matches!(why, Error::NoSpace) => {
                        model.remove(&file);
                    }
                    Err(why) => panic!("{again}: {why}"),
                }
            }
            store.checkpoint().unwrap_or_else(|why| panic!("{again}: round {round}: {why}"));
            for _ in 0..random.random_range(0..4) {
                let written = disk.written();
                let block = written[random.random_range(0..written.len())];
                if !disk.is_root(block) {
                    disk.fault_at(block, BAD[random.random_range(0..2)], &mut random);
                }
            }
            store = Store::open_last(&disk).unwrap();
            for (file, (_, pages)) in &model {
                for number in 0..620 {
                    let mut found = ZEROS;
                    match store.read(*file, number, &mut found) {
                        Ok(()) => {
                            let wanted = pages.get(&number).copied().unwrap_or(0);
                            assert!(found == content(wanted), "{again}: block {number} of {file}");
                        }
                        Err(why) => assert!(why.is_unreadable(), "{again}: {why}"),
                    }
                }
            }
            store.check().unwrap_or_else(|why| panic!("{again}: {why}"));
        }
        // All that can be found is removed: what is left is damaged, or left over from that.
        disk.heal();
        for file in model.into_keys() {
            store.delete(file).unwrap_or_else(|why| panic!("{again}: {why}"));
        }
        store.checkpoint().unwrap_or_else(|why| panic!("{again}: {why}"));
    }
}

fn volume(disks: &[SimDisk]) -> Logical<&SimDisk> {
    Logical::open(disks.iter().collect()).unwrap()
}

/// A block of the mapping that is damaged on one store is whole again when an object in it is made;
/// one that is damaged on both keeps nobody from making others.
#[test]
fn a_damaged_mapping_keeps_nobody_from_making_files() {
    for fault in BAD {
        for damaged in 1..=2 {
            let power = Power::default();
            let disks = [(); 2].map(|()| SimDisk::with(SMALL, &power));
            let named = disks.iter().zip(1..).map(|(disk, number): (_, u8)| ([number; 16], disk));
            let parameters = Parameters::default().small();
            let mut made = Logical::format([9; 16], named.collect(), parameters).unwrap();
            let new = |number| Operation::Create {
                object: ObjectId(number),
                class: Kept::Data,
                attributes: b"",
            };
            for number in [3, 300, 301] {
                made.apply(&new(number)).unwrap();
            }
            made.checkpoint().unwrap();
            let mapping = made.mapping_of(0).unwrap();
            for disk in &disks[..damaged] {
                damage(
                    disk,
                    fault,
                    |role| matches!(role, Role::Data { file, number: 2, .. } if file == mapping),
                );
            }
            let mut open = volume(&disks);
            open.apply(&new(302)).unwrap();
            open.apply(&Operation::Delete { object: ObjectId(301) }).unwrap();
            open.checkpoint().unwrap();
            // The other twin was the one that could not be read.
            open.apply(&new(303)).unwrap();
            open.checkpoint().unwrap();
            let mut open = volume(&disks);
            let report = open.check(&mut |_| {}).unwrap();
            let found = [3, 300, 301, 302].map(|number| open.exists(ObjectId(number)).ok());
            if damaged == 1 {
                assert_eq!((report.findings, report.unlisted), (vec![], 0));
                assert_eq!(found, [Some(true), Some(true), Some(false), Some(true)]);
            } else {
                assert_eq!(found, [Some(true), None, Some(false), Some(true)]);
                assert!(report.findings.iter().any(|one| one.object == Some(ObjectId(300))));
            }
        }
    }
}

/// One read fails, wherever that is in what is done up to a checkpoint, and the disk is well again.
/// That fails, and is done again by whoever has asked for it; nothing is given up for it.
#[test]
fn a_read_that_fails_once_loses_nothing() {
    let disk = SimDisk::new(SMALL);
    let mut store = made(&disk);
    let files: Vec<FileId> = (0..40).map(|_| store.create(1, Class::Data, b"").unwrap()).collect();
    for (file, byte) in files.iter().take(3).zip(1..) {
        for number in 0..600 {
            store.write(*file, number, &content(byte)).unwrap();
        }
        store.set_size(*file, 600 * BLOCK as u64).unwrap();
    }
    store.delete(files[30]).unwrap();
    store.checkpoint().unwrap();
    let changes = |store: &mut Store<&SimDisk>| {
        store.write(files[0], 300, &content(9))?;
        store.set_size(files[1], 400 * BLOCK as u64 + 7)?;
        store.delete(files[2])?;
        store.create(1, Class::Protected, b"")?;
        store.create(1, Class::Data, b"")?;
        store.checkpoint()
    };
    let mut failed = 0;
    for after in 0.. {
        let disk = disk.copy(&Power::default());
        let begun = Store::open_last(&disk).unwrap();
        let before = disk.troubles().errors();
        let mut store = begun;
        disk.troubles().fail_one_read(after);
        let done = changes(&mut store);
        let has_failed = disk.troubles().errors() > before;
        disk.troubles().end();
        if has_failed && done.is_err() {
            failed += 1;
            store = Store::open_last(&disk).unwrap();
            changes(&mut store).unwrap();
        }
        let mut store = Store::open_last(&disk).unwrap();
        for number in 0..600 {
            let wanted = [if number == 300 { 9 } else { 1 }, if number <= 400 { 2 } else { 0 }];
            if number != 400 {
                let found = [0, 1].map(|file| is(&mut store, files[file], number));
                assert_eq!(found, wanted.map(Some), "read {after}, block {number}");
            }
        }
        let report = store.check().unwrap();
        assert_eq!(report.findings, vec![], "read {after}");
        assert!(!report.has_given_up, "read {after}");
        if !has_failed {
            break;
        }
    }
    assert!(failed > 5, "{failed} reads");
}

/// Room behind a bitmap that cannot be read is not promised by a store that was just opened.
#[test]
fn room_that_nobody_can_find_is_not_promised() {
    type IsIt = fn(Role) -> bool;
    let of: [IsIt; 2] = [
        |role| matches!(role, Role::Bitmap { group: 1, .. }),
        |role| matches!(role, Role::Group(1)),
    ];
    for (fault, is_it) in BAD.into_iter().flat_map(|fault| of.map(|is_it| (fault, is_it))) {
        let disk = SimDisk::new(SMALL);
        let mut store = made(&disk);
        let all = store.credit().unwrap().0;
        let old = store.create(1, Class::Data, b"").unwrap();
        for number in 0..all - 100 {
            store.write(old, number, &content(1)).unwrap();
        }
        store.checkpoint().unwrap();
        store.punch(old, 100, all).unwrap();
        let file = store.create(2, Class::Data, b"").unwrap();
        store.checkpoint().unwrap();
        let healthy = store.credit().unwrap().0;
        damage(&disk, fault, is_it);
        let mut store = Store::open_last(&disk).unwrap();
        let promised = store.credit().unwrap().0;
        assert!(promised > 500 && promised + 500 < healthy, "{promised} of {healthy}");
        // Without what leads to them.
        for number in 0..promised - 2 * (promised / 256 + 3) {
            let written = store.write(file, number, &content(2));
            assert!(written.is_ok(), "block {number} of {promised}: {written:?}");
        }
        store.checkpoint().unwrap();
    }
}
