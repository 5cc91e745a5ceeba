//! A file store in the simulation: power failures and deaths at every write, and disks that lie.

use belay_disk::{BLOCK, ZEROS};
use belay_store::roles::Role;
use belay_store::{DataMode, Error, FileId, Parameters, Store};
use belay_volume_sim::disk::{FAULTS, Fault, Power, SimDisk, Trouble};
use belay_volume_sim::layout::Layout;
use belay_volume_sim::sabotage::Sabotage;
use belay_volume_sim::store::{Act, Simulation, random_act};
use belay_volume_sim::{Random, seeds, survival};
use rand::{Rng, SeedableRng};

const SMALL: u64 = 2048;

fn parameters(random: &mut Random) -> Parameters {
    let twin_offset = [4, 8, 16, 32][random.random_range(0..4)];
    let group_blocks = [256, 512, 1024][random.random_range(0..3)];
    let data = [DataMode::OutOfPlace, DataMode::InPlace][random.random_range(0..2)];
    Parameters { twin_offset, group_blocks, data, ..Parameters::default() }
}

fn or_fail<T>(seed: u64, test: &str, done: Result<T, String>) -> T {
    done.unwrap_or_else(|why| {
        panic!("seed {seed}: {why}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test store -- {test}")
    })
}

#[test]
fn many_lives_end_anywhere() {
    let (mut operations, mut ends, mut rolled_back) = (0, 0, 0);
    let (mut newer, mut torn) = (0, 0);
    for seed in seeds(200) {
        let mut random = Random::seed_from_u64(seed);
        let parameters = parameters(&mut random);
        let blocks = random.random_range(600..SMALL * 2);
        let mut simulation = or_fail(seed, "many_lives", Simulation::new(seed, blocks, parameters));
        for _ in 0..6 {
            let count = random.random_range(1..150);
            let acts: Vec<Act> = (0..count).map(|_| random_act(&mut random)).collect();
            let end = simulation.disk().power().steps() + random.random_range(1..1500);
            simulation.disk().power().end_at(Some(end));
            let memory = [12, 60, 4000][random.random_range(0..3)];
            or_fail(seed, "many_lives", simulation.life(&acts, memory));
            simulation.end(random.random());
            or_fail(seed, "many_lives", simulation.reopen());
        }
        operations += simulation.outcome.operations;
        ends += simulation.outcome.ends;
        rolled_back += simulation.outcome.rolled_back;
        newer += simulation.outcome.newer;
        torn += simulation.outcome.torn;
    }
    println!("{operations} operations, {ends} ends, {rolled_back} of them in a checkpoint");
    println!("in place: {newer} blocks were new, {torn} torn");
    assert!(operations > 1000 || std::env::var_os("BELAY_SEED").is_some());
}

#[test]
fn a_short_history_is_cut_at_every_write() {
    for seed in seeds(6) {
        let acts = |seed| -> Vec<Act> {
            let mut random = Random::seed_from_u64(seed);
            let mut acts: Vec<Act> = (0..40).map(|_| random_act(&mut random)).collect();
            acts.push(Act::Checkpoint);
            acts
        };
        let mut step = 0;
        loop {
            let mut random = Random::seed_from_u64(seed ^ step);
            let parameters = parameters(&mut Random::seed_from_u64(seed));
            let new = Simulation::new(seed, SMALL, parameters);
            let mut simulation = or_fail(seed, "a_short_history", new);
            let end = simulation.disk().power().steps() + step;
            simulation.disk().power().end_at(Some(end));
            or_fail(seed, "a_short_history", simulation.life(&acts(seed), 30));
            let over = !simulation.disk().power().is_off();
            simulation.end(random.random());
            let opened = simulation.reopen().map_err(|why| format!("cut at write {step}: {why}"));
            or_fail(seed, "a_short_history", opened);
            // And it can be worked with.
            or_fail(seed, "a_short_history", simulation.life(&acts(seed + 1), 4000));
            if over {
                break;
            }
            step += 1;
        }
        assert!(step > 20, "seed {seed}: {step} writes");
    }
}

/// Whatever is wrong on the disk: what is read is right, or an error.
#[test]
fn a_disk_that_lies_is_never_believed() {
    let (mut errors, mut fine) = (0, 0);
    for seed in seeds(300) {
        let mut random = Random::seed_from_u64(seed);
        let parameters = parameters(&mut random);
        let mut simulation =
            or_fail(seed, "a_disk_that_lies", Simulation::new(seed, SMALL, parameters));
        let mut acts: Vec<Act> = (0..120).map(|_| random_act(&mut random)).collect();
        acts.push(Act::Checkpoint);
        or_fail(seed, "a_disk_that_lies", simulation.life(&acts, 4000));
        let (_, model) = simulation.last().unwrap();
        let disk = simulation.disk();
        let faults = random.random_range(1..6);
        for _ in 0..faults {
            disk.fault(FAULTS[random.random_range(0..FAULTS.len())], &mut random);
        }
        let mut store = match Store::open_last(disk) {
            Ok(store) => store,
            Err(Error::NoStore(_) | Error::Disk { .. } | Error::Corrupt { .. }) => continue,
            Err(why) => panic!("seed {seed}: {why}"),
        };
        if store.epoch() != *simulation.last().unwrap().0 + 1 {
            // Both places of the newest root: nothing tells of it.
            continue;
        }
        for (file, known) in &model.files {
            let last = known.blocks.last_key_value().map_or(0, |(number, _)| number + 1);
            for number in 0..last {
                let mut block = ZEROS;
                match store.read(*file, number, &mut block) {
                    Ok(()) => {
                        assert_eq!(block, known.block(number), "seed {seed}: {file}, {number}");
                        fine += 1;
                    }
                    Err(Error::Corrupt { .. } | Error::Disk { .. } | Error::Damaged { .. }) => {
                        errors += 1
                    }
                    Err(why) => panic!("seed {seed}: {why}"),
                }
            }
        }
    }
    println!("{fine} blocks are right, {errors} are errors");
}

/// A full store can be emptied, and what was freed is there after the next checkpoint.
#[test]
fn a_full_store_can_be_emptied() {
    let disk = belay_volume_sim::disk::SimDisk::new(SMALL);
    let identity =
        belay_store::Identity { volume: [1; 16], store: [2; 16], members: vec![[2; 16]] };
    let mut store = Store::format(&disk, &identity, Parameters::default().small()).unwrap();
    let free = store.available_blocks().unwrap();
    let mut files = Vec::new();
    'full: loop {
        let file = match store.create(1, belay_store::Class::Data, b"") {
            Ok(file) => file,
            Err(Error::NoSpace) => break,
            Err(why) => panic!("{why}"),
        };
        files.push(file);
        for number in 0..300 {
            match store.write(file, number, &[7; BLOCK]) {
                Ok(()) => {}
                Err(Error::NoSpace) => break 'full,
                Err(why) => panic!("{why}"),
            }
        }
    }
    store.checkpoint().unwrap();
    assert!(store.available_blocks().unwrap() < 8);
    for file in files {
        store.delete(file).unwrap();
    }
    store.checkpoint().unwrap();
    // What stays is the block of the inodes.
    assert_eq!(store.available_blocks().unwrap(), free - 2);
    assert!(store.check().unwrap().findings.is_empty());
}

/// What this simulation is worth: the baselines that do not survive crashes (Loris VII-A) are found
/// out.
#[test]
fn a_store_that_does_not_survive_is_found_out() {
    // What each must come to. Freeing at once is not hidden behind what is written in place, so it
    // is tried alone as well.
    let safe = Parameters::default().small();
    let alone = Parameters { frees_at_once: true, ..safe };
    let layouts = Layout::ALL.map(|layout| {
        let unsafe_ones = [Layout::FreedAtOnce, Layout::Twins(0)];
        (layout.to_string(), layout.parameters().small(), !unsafe_ones.contains(&layout))
    });
    for (name, parameters, survives) in layouts.into_iter().chain([("alone".into(), alone, false)])
    {
        // What is shipped has the most of them.
        let seeds = if parameters == safe { 300 } else { 60 };
        let found = survival::of(parameters, seeds);
        println!("{name}: {found:?}");
        assert_eq!((found.first.is_none(), found.losses == 0), (survives, survives), "{name}");
        let in_place = parameters.data == DataMode::InPlace;
        assert!(found.power_failures > seeds && (in_place || found.torn == 0), "{name}");
    }
}

/// A new block of inodes makes their tree deeper, which may find room, and then finds none itself.
#[test]
fn a_file_that_finds_no_room_leaves_the_inodes_as_they_were() {
    for left in 0..12 {
        let disk = belay_volume_sim::disk::SimDisk::new(SMALL);
        let store = [2; 16];
        let identity = belay_store::Identity { volume: [1; 16], store, members: vec![store] };
        let mut store = Store::format(&disk, &identity, Parameters::default().small()).unwrap();
        let files: Vec<_> =
            (0..16).map(|_| store.create(1, belay_store::Class::Data, b"").unwrap()).collect();
        let mut number = 0;
        while store.available_blocks().unwrap() > left {
            if store.write(files[0], number, &[7; BLOCK]).is_err() {
                break;
            }
            number += 1;
        }
        store.set_size(files[0], number * BLOCK as u64).unwrap();
        // Blocks come back, one by one, until there is room for one of the two blocks that it
        // takes.
        let mut made = false;
        for cut in 0..number {
            store.checkpoint().unwrap();
            match store.create(1, belay_store::Class::Data, b"") {
                Ok(_) => made = true,
                Err(Error::NoSpace) => {}
                Err(why) => panic!("{left} left, {cut} cut: {why}"),
            }
            store.checkpoint().unwrap();
            for file in &files {
                store
                    .attributes(*file)
                    .unwrap_or_else(|why| panic!("{left} left, {cut} cut: {why}"));
            }
            if made {
                break;
            }
            store.punch(files[0], cut, 1).unwrap();
        }
        let findings = store.check().unwrap().findings;
        assert!(made && findings.is_empty(), "{left} left: {made}, {findings:?}");
    }
}

fn small_store(disk: &SimDisk) -> Store<&SimDisk> {
    let store = [2; 16];
    let identity = belay_store::Identity { volume: [1; 16], store, members: vec![store] };
    Store::format(disk, &identity, Parameters::default().small()).unwrap()
}

/// A flush fails, and the system takes for written what is not on the disk: nobody may build on
/// that.
#[test]
fn an_intent_behind_one_that_a_failed_flush_has_lost_is_there() {
    let disk = SimDisk::new(SMALL);
    let mut store = small_store(&disk);
    assert!(store.append_intent(b"one").unwrap());
    disk.troubles().begin(Trouble::LostWrites, 0);
    assert!(store.append_intent(b"two").is_err());
    disk.troubles().end();
    let mut store = Store::open_last(&disk).unwrap();
    assert!(store.append_intent(b"three").unwrap());
    disk.power_failure_with(0, &mut Random::seed_from_u64(1));
    let found = Store::open_last(&disk).unwrap().intents().unwrap();
    assert!(found.ends_with(&[b"three".to_vec()]) && found.starts_with(&[b"one".to_vec()]));
}

/// A store whose data are written in place, with a file of two blocks that belong to its
/// checkpoint.
fn in_place(disk: &SimDisk) -> (Store<&SimDisk>, FileId) {
    let store = [2; 16];
    let identity = belay_store::Identity { volume: [1; 16], store, members: vec![store] };
    let parameters = Parameters { data: DataMode::InPlace, ..Parameters::default().small() };
    let mut store = Store::format(disk, &identity, parameters).unwrap();
    let file = store.create(1, belay_store::Class::Data, b"").unwrap();
    store.write(file, 0, &[1; 2 * BLOCK]).unwrap();
    store.set_size(file, 2 * BLOCK as u64).unwrap();
    store.checkpoint().unwrap();
    (store, file)
}

/// Any one read fails when a store is opened whose blocks were overwritten in place: nothing that
/// it does then makes them lost for good.
#[test]
fn what_was_overwritten_is_known_when_it_can_be_read_again() {
    let disk = SimDisk::new(SMALL);
    let (mut store, file) = in_place(&disk);
    store.write(file, 0, &[2; 2 * BLOCK]).unwrap();
    // A block of the log, a flush, and both blocks of the file.
    disk.power().end_at(Some(disk.power().steps() + 4));
    assert!(store.checkpoint().is_err());
    disk.power_failure_with(100, &mut Random::seed_from_u64(1));
    disk.power().end_at(None);
    let read = |store: &mut Store<&SimDisk>, number| {
        let mut found = ZEROS;
        store.read(file, number, &mut found).map(|()| found[0])
    };
    let mut unresolved = 0;
    for after in 0.. {
        let disk = disk.copy(&Power::default());
        disk.troubles().fail_one_read(after);
        let opened = Store::open_last(&disk);
        let has_failed = disk.troubles().errors() > 0;
        disk.troubles().end();
        if let Ok(mut store) = opened {
            let is_unresolved = store.unresolved().is_some();
            unresolved += u32::from(is_unresolved);
            for number in 0..2 {
                match read(&mut store, number) {
                    Ok(found) => assert_eq!(found, 2, "read {after} has failed"),
                    Err(why) => assert!(is_unresolved && why.may_pass(), "read {after}: {why}"),
                }
            }
            // What would be promised of it stays promised, and what destroys what the log says is
            // refused.
            assert!(store.append_intent(b"one").unwrap());
            let changed = [
                store.write(file, 0, &[3; BLOCK]).err(),
                store.punch(file, 0, 1).err(),
                store.checkpoint().err(),
            ];
            for error in changed {
                assert_eq!(error.is_some_and(|why| why.may_pass()), is_unresolved, "read {after}");
            }
            if !has_failed {
                break;
            }
            if !is_unresolved {
                continue;
            }
        }
        let mut store = Store::open_last(&disk).unwrap();
        assert!(store.unresolved().is_none());
        for number in 0..2 {
            assert_eq!(read(&mut store, number).unwrap(), 2, "read {after} had failed");
        }
        store.checkpoint().unwrap();
        let mut store = Store::open_last(&disk).unwrap();
        assert_eq!(store.check().unwrap().findings, vec![]);
    }
    // The block of the log and the one behind it, two of the file, and what leads there.
    assert!(unresolved > 4, "{unresolved}");
}

/// A flush of the resynchronization log fails, and the system takes for written what is not on the
/// disk: what is overwritten later is still known by what the log has of it.
#[test]
fn what_is_overwritten_behind_a_failed_flush_is_known() {
    for step in 0.. {
        let disk = SimDisk::new(SMALL);
        let (mut store, file) = in_place(&disk);
        store.write(file, 0, &[2; BLOCK]).unwrap();
        disk.troubles().begin(Trouble::LostWrites, 0);
        assert!(store.checkpoint().is_err());
        disk.troubles().end();
        let mut store = Store::open_last(&disk).unwrap();
        store.write(file, 1, &[2; BLOCK]).unwrap();
        disk.power().end_at(Some(disk.power().steps() + step));
        let taken = store.checkpoint().is_ok();
        disk.power_failure_with(100, &mut Random::seed_from_u64(step));
        disk.power().end_at(None);
        let mut store = Store::open_last(&disk).unwrap();
        for number in 0..2 {
            let mut found = ZEROS;
            let read = store.read(file, number, &mut found);
            assert!(read.is_ok(), "block {number} after {step} steps: {read:?}");
            assert!(found == [1; BLOCK] || found == [2; BLOCK]);
        }
        if taken {
            assert!(step > 5);
            break;
        }
    }
}

/// The power fails at each step of a checkpoint that overwrites blocks, of a disk that writes all
/// of a block, or nothing. Gives at how many of them, and for how many of a few chances, a block is
/// neither old nor new.
fn lost_by_overwrites(sabotage: Option<Sabotage>) -> u64 {
    const BLOCKS: usize = 16;
    let mut lost = 0;
    for step in 0.. {
        let disk = SimDisk::new(SMALL);
        let (mut store, file) = in_place(&disk);
        store.write(file, 0, &[1; BLOCKS * BLOCK]).unwrap();
        store.set_size(file, (BLOCKS * BLOCK) as u64).unwrap();
        store.checkpoint().unwrap();
        store.write(file, 0, &[2; BLOCKS * BLOCK]).unwrap();
        disk.sabotage(sabotage);
        let begun = store.epoch();
        disk.power().end_at(Some(disk.power().steps() + step));
        let taken = store.checkpoint().is_ok();
        disk.power().end_at(None);
        for seed in 0..8 {
            let disk = disk.copy(&Power::default());
            disk.sabotage(None);
            disk.power_failure_of_whole_blocks(50, &mut Random::seed_from_u64(seed));
            let mut store = Store::open_last(&disk).unwrap();
            // With a disk that keeps no order, the next checkpoint may be there without what it
            // consists of: another matter.
            if sabotage.is_some() && store.epoch() > begun {
                continue;
            }
            let mut is_kept = |number| {
                let mut found = ZEROS;
                let read = store.read(file, number, &mut found);
                read.is_ok() && (found == [2; BLOCK] || !taken && found == [1; BLOCK])
            };
            lost += u64::from(!(0..BLOCKS as u64).all(&mut is_kept));
        }
        if taken {
            assert!(step > BLOCKS as u64);
            break;
        }
    }
    lost
}

/// What the log has of a block is durable before the block is overwritten (Loris V-C).
#[test]
fn whole_blocks_are_not_lost_by_an_overwrite() {
    assert_eq!(lost_by_overwrites(None), 0);
    assert!(lost_by_overwrites(Some(Sabotage::LostFlush)) > 0);
}

/// A file that was longer when its last block was overwritten is as long as before after a power
/// failure: behind its end are zeros, which is seen when it becomes longer again.
#[test]
fn nothing_of_an_overwrite_stays_behind_the_end_of_a_file() {
    const END: usize = BLOCK + 1000;
    for step in 0.. {
        let disk = SimDisk::new(SMALL);
        let (mut store, file) = in_place(&disk);
        store.set_size(file, END as u64).unwrap();
        store.checkpoint().unwrap();
        store.write(file, 1, &[2; BLOCK]).unwrap();
        store.set_size(file, 2 * BLOCK as u64).unwrap();
        disk.power().end_at(Some(disk.power().steps() + step));
        let taken = store.checkpoint().is_ok();
        // The second of the two may end while the tail is cleared.
        for seed in 0..2 {
            disk.power_failure_with(100, &mut Random::seed_from_u64(seed));
            disk.power().end_at(Some(disk.power().steps() + seed * step));
            let _ = Store::open_last(&disk).and_then(|mut store| store.checkpoint().map(drop));
        }
        disk.power().end_at(None);
        let mut store = Store::open_last(&disk).unwrap();
        let is_longer = store.attributes(file).unwrap().size > END as u64;
        store.set_size(file, 2 * BLOCK as u64).unwrap();
        let mut found = ZEROS;
        store.read(file, 1, &mut found).unwrap();
        let (before, behind) = found.split_at(END - BLOCK);
        assert!([1, 2].iter().any(|byte| before.iter().all(|one| one == byte)), "step {step}");
        let wanted = if is_longer { 2 } else { 0 };
        let first = behind.iter().find(|byte| **byte != wanted);
        assert_eq!(first, None, "step {step}, wanted {wanted}");
        if taken {
            assert!(step > 5);
            break;
        }
    }
}

/// The logs of a new store are as long as they are to be, whatever is at its begin.
#[test]
fn the_logs_have_room() {
    for data in [DataMode::OutOfPlace, DataMode::InPlace] {
        let disk = SimDisk::new(1 << 17);
        let store = [2; 16];
        let identity = belay_store::Identity { volume: [1; 16], store, members: vec![store] };
        let parameters = Parameters { data, ..Parameters::default() };
        let mut store = Store::format(&disk, &identity, parameters).unwrap();
        for byte in 0..3 {
            assert!(store.append_intent(&[byte; 1 << 20]).unwrap(), "the intent log is full");
        }
        let file = store.create(1, belay_store::Class::Data, b"").unwrap();
        let blocks = 20_000;
        let write = |store: &mut Store<&SimDisk>, byte| {
            (0..blocks).step_by(200).for_each(|first| {
                store.write(file, first, &[byte; 200 * BLOCK]).unwrap();
            });
            store.checkpoint().unwrap();
            let found = store.places(file, usize::MAX).unwrap();
            found.into_iter().map(|(_, pointer)| pointer.block()).collect::<Vec<_>>()
        };
        let before = write(&mut store, 1);
        let stays = write(&mut store, 2) == before;
        assert_eq!(stays, data == DataMode::InPlace);
        assert_eq!(before.len(), blocks as usize);
    }
}

/// A block of the log that cannot be read for a while is not its end: what comes behind it was
/// promised.
#[test]
fn an_intent_log_that_cannot_be_read_is_not_written_over() {
    let disk = SimDisk::new(SMALL);
    let mut store = small_store(&disk);
    assert!(store.append_intent(b"one").unwrap());
    let mut store = Store::open_last(&disk).unwrap();
    disk.troubles().begin(Trouble::Reads, 0);
    let appended = store.append_intent(b"two");
    disk.troubles().end();
    assert!(matches!(appended, Ok(false)), "{appended:?}");
    assert_eq!(Store::open_last(&disk).unwrap().intents().unwrap(), [b"one".to_vec()]);
}

/// The blocks of the intent log that were written.
fn log_of(disk: &SimDisk) -> Vec<u64> {
    let mut store = Store::open_last(disk).unwrap();
    let is_log = |block: &u64| matches!(store.role_of(*block).unwrap().role, Role::Intents { .. });
    disk.written().into_iter().filter(is_log).collect()
}

/// Whatever is wrong with the log of a store that was closed after a checkpoint, it has nothing
/// that was promised.
#[test]
fn a_damaged_log_that_nobody_needs_is_none() {
    for (fault, ends) in [Fault::FlippedBit, Fault::Unreadable]
        .into_iter()
        .flat_map(|fault| [0, 1].map(|ends| (fault, ends)))
    {
        let disk = SimDisk::new(SMALL);
        let mut store = small_store(&disk);
        for _ in 0..5 + ends {
            for intent in [b"one", b"two"] {
                assert!(store.append_intent(&intent.repeat(2000)).unwrap());
            }
            store.checkpoint().unwrap();
        }
        drop(store);
        for block in log_of(&disk) {
            let mut random = Random::seed_from_u64(block);
            if disk.fault_at(block, fault, &mut random).is_none() {
                continue;
            }
            let mut store = Store::open_last(&disk).unwrap();
            assert_eq!(store.intents().unwrap(), Vec::<Vec<u8>>::new(), "block {block}");
            assert!(store.append_intent(b"three").unwrap(), "block {block}");
            // Behind something that was promised, nobody knows what a block has that cannot be
            // read.
            if fault != Fault::Unreadable {
                let found = Store::open_last(&disk).unwrap().intents().unwrap();
                assert_eq!(found, [b"three".to_vec()]);
            }
            store.checkpoint().unwrap();
            store.checkpoint().unwrap();
            disk.heal();
        }
    }
}

/// Where something was promised, a log that cannot be read is not taken for an empty one.
#[test]
fn a_damaged_log_with_something_in_it_is_found() {
    let disk = SimDisk::new(SMALL);
    let mut store = small_store(&disk);
    store.checkpoint().unwrap();
    assert!(store.append_intent(b"one").unwrap());
    drop(store);
    let found = |disk: &SimDisk| Store::open_last(disk).unwrap().intents();
    let zeros = disk.holding(&ZEROS);
    let written: Vec<u64> =
        log_of(&disk).into_iter().filter(|block| !zeros.contains(block)).collect();
    let [first, mark] = written[..] else { panic!("{written:?}") };
    let mut random = Random::seed_from_u64(1);
    disk.fault_at(mark, Fault::Unreadable, &mut random);
    assert_eq!(found(&disk).unwrap(), [b"one".to_vec()]);
    disk.heal();
    for fault in [None, Some(Fault::FlippedBit), Some(Fault::Unreadable)] {
        disk.fault_at(first, Fault::Unreadable, &mut random);
        if let Some(fault) = fault {
            disk.fault_at(mark, fault, &mut random);
        }
        let intents = found(&disk);
        assert!(
            matches!(intents, Err(Error::Intents { block, .. }) if block == first),
            "{intents:?}"
        );
        disk.heal();
    }
}

#[test]
fn a_checkpoint_that_was_found_after_a_failed_flush_stays() {
    for accesses in 0.. {
        let disk = SimDisk::new(SMALL);
        let mut store = small_store(&disk);
        store.create(1, belay_store::Class::Data, b"").unwrap();
        disk.troubles().begin(Trouble::LostWrites, accesses);
        let taken = store.checkpoint();
        disk.troubles().end();
        drop(store);
        let found = Store::open_last(&disk).unwrap().epoch();
        disk.power_failure_with(0, &mut Random::seed_from_u64(accesses));
        assert_eq!(Store::open_last(&disk).unwrap().epoch(), found, "after {accesses} accesses");
        if taken.is_ok() {
            assert!(accesses > 5);
            break;
        }
    }
}

/// Places that cannot be read for a while say nothing: what they hold may be newer than what can be
/// read.
#[test]
fn a_root_that_cannot_be_read_is_not_taken_for_none() {
    for accesses in 0..8 {
        for checkpoints in 0..4 {
            let disk = SimDisk::new(SMALL);
            let mut store = small_store(&disk);
            for _ in 0..checkpoints {
                store.checkpoint().unwrap();
            }
            let epoch = store.epoch();
            disk.troubles().begin(Trouble::Reads, accesses);
            let opened = Store::open_last(&disk).map(|store| store.epoch());
            disk.troubles().end();
            if let Ok(opened) = opened {
                assert_eq!(opened, epoch, "after {accesses} accesses");
            }
            assert_eq!(Store::open_last(&disk).unwrap().epoch(), epoch);
        }
    }
}

/// A checkpoint that could not be read when the store was opened, and was in one of its places
/// alone, does not come back.
#[test]
fn a_root_that_is_gone_back_from_stays_away() {
    let mut gone_back = 0;
    for step in 0.. {
        let disk = SimDisk::new(SMALL);
        let mut store = small_store(&disk);
        store.checkpoint().unwrap();
        disk.power().end_at(Some(disk.power().steps() + step));
        let taken = store.checkpoint().is_ok();
        disk.power_failure_with(100, &mut Random::seed_from_u64(step));
        disk.power().end_at(None);
        for after in 0..12 {
            let disk = disk.copy(&Power::default());
            let newest = Store::open_last(&disk.copy(&Power::default())).unwrap().epoch();
            disk.troubles().fail_one_read(after);
            let opened = Store::open_last(&disk);
            disk.troubles().end();
            let Ok(mut store) = opened else { continue };
            gone_back += u64::from(store.epoch() < newest);
            let epoch = store.epoch();
            assert!(store.append_intent(b"promised").unwrap());
            drop(store);
            disk.power_failure_with(0, &mut Random::seed_from_u64(step));
            let store = Store::open_last(&disk).unwrap();
            assert_eq!(store.epoch(), epoch, "after {step} steps and {after} reads");
            assert_eq!(store.intents().unwrap(), [b"promised".to_vec()]);
        }
        if taken {
            break;
        }
    }
    assert!(gone_back > 0);
}

/// Both copies of the newest root are damaged. If something was synced after that checkpoint the
/// one before is not taken for it; else that is told.
#[test]
fn a_checkpoint_of_which_nothing_is_left_is_missed() {
    for fault in [Fault::FlippedBit, Fault::Zeros] {
        for (round, is_synced) in (1..6).flat_map(|round| [true, false].map(|is| (round, is))) {
            let disk = SimDisk::new(SMALL);
            let mut store = small_store(&disk);
            for _ in 0..round {
                store.append_intent(b"before").unwrap();
                store.checkpoint().unwrap();
            }
            let epoch = store.checkpoint().unwrap();
            if is_synced {
                assert!(store.append_intent(b"promised").unwrap());
            }
            drop(store);
            let mut random = Random::seed_from_u64(round);
            let [newest, ..] = &belay_store::root::checkpoints(&&disk).unwrap()[..] else {
                panic!()
            };
            for place in newest.geometry.root_places(epoch) {
                disk.fault_at(place, fault, &mut random).unwrap();
            }
            let opened = Store::open_last(&disk);
            match (opened, is_synced) {
                (Err(Error::NoStore(why)), true) => {
                    assert!(why.contains("is damaged"), "{why}");
                    let [before, ..] = &belay_store::root::checkpoints(&&disk).unwrap()[..] else {
                        panic!()
                    };
                    belay_store::root::give_up_next(&&disk, before).unwrap();
                    assert_eq!(Store::open_last(&disk).unwrap().epoch(), epoch);
                }
                (Ok(mut store), false) => {
                    assert_eq!(store.epoch(), epoch, "it is at the one before");
                    let said = |store: &mut Store<&SimDisk>| {
                        let notes = store.check().unwrap().notes;
                        notes.iter().any(|note| note.contains("have no whole one"))
                    };
                    assert!(said(&mut store));
                    store.checkpoint().unwrap();
                    assert!(!said(&mut store));
                }
                (opened, _) => panic!("{fault:?}: {opened:?}"),
            }
        }
    }
}
