//! Disks, memory and objects that say what nobody wrote. The fuzz targets `image`, `cache` and
//! `namespace` do the same for longer.

use belay_volume_sim::hostile::{cache, image, namespace};
use belay_volume_sim::{Random, seeds};
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Has random bytes say what is wrong.
fn corrupt(test: &str, usual: u64, act: impl Fn(&[u8])) {
    for seed in seeds(usual) {
        let mut random = Random::seed_from_u64(seed);
        let length = random.random_range(1..200);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        if catch_unwind(AssertUnwindSafe(|| act(&bytes))).is_err() {
            panic!(
                "seed {seed}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test hostile -- {test}"
            );
        }
    }
}

#[test]
fn a_corrupt_disk_harms_nobody() {
    let world = image::World::new();
    corrupt("a_corrupt_disk", 600, |bytes| world.use_with(bytes));
}

#[test]
fn a_corrupt_memory_harms_nobody() {
    let world = cache::World::new();
    corrupt("a_corrupt_memory", 1500, |bytes| world.use_with(bytes));
}

#[test]
fn corrupt_objects_and_odd_messages_harm_nobody() {
    let world = namespace::World::new();
    corrupt("corrupt_objects", 1500, |bytes| world.use_with(bytes));
}

#[test]
fn a_byte_that_is_wrong_is_found_and_harms_nobody() {
    let world = image::World::new();
    let (mut found, mut all) = (0, 0);
    for block in 0..world.blocks() {
        for at in (block % 97..4096).step_by(512) {
            all += 1;
            found += u64::from(world.is_found(block, at, 0x40, false));
            // Whatever comes of it.
            world.is_found(block, at, 0x40, true);
        }
    }
    // The rest is in twins that are not in use, and in what only a power failure needs.
    assert!(found > all / 2, "{found} of {all}");
}

/// Every byte of three small volumes, in the middle of their work; or one in `BELAY_BYTES`, so that
/// the tests of a change take no longer than others.
#[test]
fn any_byte_that_is_wrong_is_found_or_harms_nobody() {
    let asked = std::env::var("BELAY_BYTES").ok().and_then(|text| text.parse().ok());
    let stride: usize = asked.unwrap_or(61).max(1);
    let world = image::World::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let of = |thread: usize| {
        // A bit in one, all of them in the next.
        let xor = |at: usize| if (at / 8).is_multiple_of(2) { 1 << (at % 8) } else { 0xff };
        let all = (thread * stride..world.bytes()).step_by(threads * stride);
        all.filter(|&at| world.use_with_wrong_byte(at, xor(at))).count()
    };
    let of = &of;
    let found: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of(thread))).collect();
        all.into_iter().map(|one| one.join().expect("its end")).sum()
    });
    let all = world.bytes().div_ceil(stride);
    println!("{all} bytes were wrong, one at a time; a check has found {found} of them");
    assert!(found > all / 2, "{found} of {all}");
}

/// The places for roots.
const ROOTS: [u64; 4] = [1, 2, 1022, 1023];

#[test]
fn a_root_that_counts_what_cannot_be_is_none() {
    let world = image::World::new();
    // Its epoch, the depth of the tree of the inodes, free blocks and pairs, the logs, and up to
    // which transaction it reaches.
    for (at, length) in
        [(64, 8), (112, 4), (88, 8), (104, 8), (424, 8), (400, 8), (408, 8), (416, 8), (160, 8)]
    {
        for value in [[0xff; 8], [0, 0, 0, 0, 0, 0, 0, 0x80], [1, 0, 0, 0, 0, 0, 0, 0]] {
            let written = ROOTS.map(|root| (root, at, value.get(..length).unwrap_or_default()));
            world.use_written(&written);
        }
    }
}

#[test]
fn a_bitmap_that_gives_away_what_is_in_use_is_not_believed() {
    let world = image::World::new();
    // Those of the four groups, both twins: all is free, among it what has a fixed place.
    for groups in [0..1, 0..4, 1..4] {
        let places: Vec<u64> =
            groups.flat_map(|group| [66, 70].map(|block| group * 256 + block)).collect();
        for bytes in [&[0; 32][..], &[0; 1], &[0x55; 32]] {
            let written: Vec<_> = places.iter().map(|block| (*block, 0, bytes)).collect();
            world.use_written(&written);
        }
    }
}

#[test]
fn a_page_of_a_directory_with_the_last_keys_is_gone_through() {
    let world = namespace::World::new();
    for key in [u64::MAX, u64::MAX - 7] {
        // One name, under that key.
        let mut page = vec![1, 0, 1, 0];
        page.resize(16, 0);
        page.extend_from_slice(&key.to_le_bytes());
        page.extend_from_slice(&17u64.to_le_bytes());
        page.extend_from_slice(&[0o10, 1, b'a']);
        world.use_written(belay_posix::ROOT, 0, 0, &page);
    }
}

#[test]
fn pages_without_number_are_not_punched_at_once() {
    use belay_cache::{Capacity, Error, Layout, Publisher, Shared, changes::MOST_PUNCHED};
    use belay_object::{ObjectId, Operation, Room};
    use belay_volume_sim::memory::SimMemory;
    use std::convert::Infallible;
    let layout = Layout::new(Capacity { frames: 40, slots: 20 });
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    shared.initialize(0, 0, &Room::default());
    let mut publisher = Publisher::attach::<Infallible>(shared.clone(), 1).unwrap();
    let object = ObjectId(16);
    let mut punch = |count| {
        let mut draft = publisher.draft();
        publisher.add(&mut draft, &Operation::Punch { object, page: 0, count });
        publisher.commit::<Infallible>(draft, 0, b"")
    };
    assert!(matches!(punch(MOST_PUNCHED + 1), Err(Error::NoSpace)));
    punch(MOST_PUNCHED - 1).unwrap();
    punch(1).unwrap();
    // A checkpoint makes room for more.
    assert!(matches!(punch(1), Err(Error::Full)));
    // Whoever comes next can read the log.
    Publisher::attach::<Infallible>(shared, 2).unwrap();
}

/// Slots that all lead to one record would have a cache take many times what its memory has.
#[test]
fn a_frame_that_many_transactions_claim_is_found() {
    use belay_cache::{Capacity, Layout, Publisher, Shared};
    use belay_memory::Memory;
    use belay_object::{Class, ObjectId, PAGE, Room};
    use belay_volume_sim::memory::SimMemory;
    use std::convert::Infallible;
    let layout = Layout::new(Capacity { frames: 40, slots: 20 });
    let memory = SimMemory::new(layout.words);
    let shared = Shared::new(memory.clone(), layout);
    shared.initialize(
        0,
        0,
        &Room {
            credit: belay_object::Credit { blocks: 1 << 20, pairs: 1 << 19 },
            ..Room::default()
        },
    );
    let mut publisher = Publisher::attach::<Infallible>(shared.clone(), 1).unwrap();
    let mut draft = publisher.draft();
    publisher.create(&mut draft, ObjectId(16), Class::Data, b"");
    publisher.write::<Infallible>(&mut draft, ObjectId(16), 0, &[[1; PAGE]; 12]).unwrap();
    publisher.commit::<Infallible>(draft, 0, b"").unwrap();
    Publisher::attach::<Infallible>(shared.clone(), 2).unwrap();
    let slot = memory.load(layout.slots);
    for number in 1..20 {
        memory.store(layout.slots + number, slot);
        let attached = Publisher::attach::<Infallible>(shared.clone(), 3);
        assert_eq!(attached.is_err(), number >= 3, "{number}: {attached:?}");
    }
}

/// The intent log is done again without a gap, or not at all.
#[test]
fn transactions_that_are_missing_in_the_intent_log_are_found() {
    use belay_cache::intent::{replay, waiting};
    use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
    use belay_object::{Class, ObjectId, Operation, PAGE};
    use belay_volume_sim::hostile::objects::Objects;
    use belay_volume_sim::memory::SimMemory;
    use std::convert::Infallible;
    let layout = Layout::new(Capacity { frames: 80, slots: 20 });
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    let mut below = Objects::default();
    shared.initialize(0, 0, &belay_object::Lower::room(&mut below).unwrap());
    let cleaner = Cleaner::new(shared.clone());
    let mut publisher = Publisher::attach::<Infallible>(shared, 1).unwrap();
    for number in 16..20 {
        let object = ObjectId(number);
        let mut draft = publisher.draft();
        publisher.create(&mut draft, object, Class::Data, b"");
        publisher.write::<Infallible>(&mut draft, object, 0, &[[1; PAGE]]).unwrap();
        publisher.add(&mut draft, &Operation::SetSize { object, size: PAGE as u64 });
        publisher.commit::<Infallible>(draft, 0, b"").unwrap();
        cleaner.sync(&mut below, &[object]).unwrap();
    }
    let with = |which: &[usize]| {
        let mut below = below.clone();
        below.intents = which.iter().map(|at| below.intents[*at].clone()).collect();
        let (waits, replayed) = (waiting(&mut below), replay(&mut below));
        assert_eq!(waits.is_ok(), replayed.is_ok());
        replayed.ok().map(|next| (next, below.all.len()))
    };
    assert_eq!(with(&[]), Some((0, 0)));
    assert_eq!(with(&[0, 1, 2, 3]), Some((4, 4)));
    assert_eq!(with(&[0, 1]), Some((2, 2)));
    assert_eq!(with(&[0, 1, 1, 2]), Some((3, 3)), "appended again, as nobody had noted it");
    for gap in [&[1, 2, 3][..], &[0, 2, 3], &[0, 1, 3], &[3]] {
        assert_eq!(with(gap), None, "{gap:?}");
    }
}

/// What is in the intent log is limited as the cache's own log is, and nothing of a log is done
/// that makes no sense as a whole.
#[test]
fn an_intent_log_that_makes_no_sense_is_refused_as_a_whole() {
    use belay_cache::appended::{Part, append};
    use belay_cache::changes::MOST_PUNCHED;
    use belay_cache::intent::{replay, waiting};
    use belay_object::{Class, ObjectId, Operation, PAGE, Transaction};
    use belay_volume_sim::hostile::objects::Objects;
    let (first, object) = (ObjectId(16), ObjectId(17));
    let create = Operation::Create { object, class: Class::Data, attributes: b"" };
    let delete = Operation::Delete { object };
    let write = Operation::Write { object, page: 0, data: &[1; PAGE] };
    let frames = [1.into()];
    let pages = Operation::Pages { object, page: 0, frames: &frames };
    let punch = |count| Operation::Punch { object, page: 7, count };
    let far = Operation::Write { object, page: u64::MAX - 1, data: &[1; PAGE] };
    // How many objects are there, if it is done.
    let replayed = |operations: &[Operation<'_>]| {
        let before = Operation::Create { object: first, class: Class::Data, attributes: b"" };
        let mut below = Objects::default();
        let mut bytes = Vec::new();
        for (number, operation) in (0..).zip(std::iter::once(&before).chain(operations)) {
            let mut transaction = Transaction::new();
            transaction.add(operation);
            let part = Part { number, is_data: false, bytes: transaction.bytes() };
            append(&mut bytes, &part);
        }
        below.intents.push(bytes);
        waiting(&mut below).unwrap();
        match replay(&mut below) {
            Ok(_) => Some(below.all.len()),
            Err(_) => {
                assert_eq!(below.all.len(), 0, "something was done");
                None
            }
        }
    };
    let again = [create.clone(), delete.clone(), create.clone(), write.clone()];
    assert_eq!(replayed(&again), Some(2));
    assert_eq!(replayed(&[create.clone(), far]), Some(2));
    assert_eq!(replayed(&[create.clone(), punch(MOST_PUNCHED - 1), punch(1)]), Some(2));
    assert_eq!(replayed(&[create.clone(), punch(MOST_PUNCHED - 1), punch(2)]), None);
    assert_eq!(replayed(&[create.clone(), punch(u64::MAX / 2), punch(u64::MAX / 2)]), None);
    assert_eq!(replayed(&[create.clone(), create.clone()]), None);
    assert_eq!(replayed(&[delete.clone(), write.clone()]), None);
    assert_eq!(replayed(&[write, create.clone()]), None);
    assert_eq!(replayed(&[create.clone(), delete.clone(), delete]), None);
    assert_eq!(replayed(&[create, pages]), None);
}
