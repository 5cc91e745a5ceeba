//! Objects that become damaged while changes to them are on their way: these are dropped, and
//! everything else reaches the stores.

use belay_cache::intent::replay;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{Lower, ObjectId, PAGE};
use belay_posix::namespace::Rename;
use belay_posix::{Caller, Memo, Namespace, ROOT, View};
use belay_store::roles::Role;
use belay_store::{Parameters, Store};
use belay_volume_sim::Random;
use belay_volume_sim::SECRET;
use belay_volume_sim::disk::{Fault, Power, SimDisk};
use belay_volume_sim::memory::SimMemory;
use rand::SeedableRng;

const FILE: u32 = 0o100_644;
/// More than one block of the mapping has, and many more than one of inodes.
const FILES: u64 = 140;

type Below<'d> = Logical<&'d SimDisk>;

/// What is damaged: what is known of the last file.
#[derive(Clone, Copy, Debug)]
enum What {
    Inode,
    Mapping,
}

const ALL: [(What, Fault); 4] = [
    (What::Inode, Fault::FlippedBit),
    (What::Inode, Fault::Unreadable),
    (What::Mapping, Fault::FlippedBit),
    (What::Mapping, Fault::Unreadable),
];

struct Tested {
    shared: Shared<SimMemory>,
    cleaner: Cleaner<SimMemory>,
    publisher: Publisher<SimMemory>,
    memo: Memo,
    unique: u64,
}

impl Tested {
    fn ask<T>(
        &mut self,
        below: &mut Below<'_>,
        act: impl FnOnce(&mut Namespace<'_, '_, SimMemory, Below<'_>>) -> T,
    ) -> T {
        let mut view = View::new(&mut self.publisher, below);
        let done = act(&mut Namespace::new(&mut view, Caller::default(), &mut self.memo));
        self.unique += 2;
        view.commit(self.unique, b"").unwrap();
        done
    }

    fn write(&mut self, below: &mut Below<'_>, object: ObjectId, byte: u8) {
        self.ask(below, |namespace| namespace.write(object, Some(0), &[byte; PAGE]).unwrap());
    }

    fn is_damaged(&mut self, below: &mut Below<'_>, name: &[u8]) -> bool {
        self.ask(below, |namespace| namespace.damaged(ROOT, name).unwrap().is_some())
    }
}

fn attach(shared: &Shared<SimMemory>, generation: u32) -> Publisher<SimMemory> {
    Publisher::attach::<belay_logical::Error>(shared.clone(), generation).unwrap()
}

fn open(disk: &SimDisk) -> Below<'_> {
    Logical::open(vec![disk]).unwrap()
}

fn name(number: u64) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

/// A volume with files, all of them in a checkpoint; and the first and the last of them.
fn volume(disk: &SimDisk) -> (Tested, ObjectId, ObjectId) {
    let parameters = Parameters::default().small();
    let mut below = Logical::format([9; 16], vec![([1; 16], disk)], parameters).unwrap();
    let layout = Layout::new(Capacity { frames: 400, slots: 80 });
    let shared = Shared::new(SimMemory::new(layout.words), layout);
    shared.initialize(below.epoch() - 1, 0, &below.room().unwrap());
    let cleaner = Cleaner::new(shared.clone());
    let publisher = attach(&shared, 1);
    let mut tested = Tested { shared, cleaner, publisher, memo: Memo::default(), unique: 0 };
    tested.ask(&mut below, |namespace| namespace.format(SECRET).unwrap());
    let made: Vec<ObjectId> = (0..FILES)
        .map(|number| {
            let made = tested.ask(&mut below, |namespace| {
                namespace.make(ROOT, &name(number), FILE, 0).unwrap().object
            });
            tested.write(&mut below, made, 1);
            if number % 20 == 0 {
                tested.cleaner.checkpoint(&mut below).unwrap();
            }
            made
        })
        .collect();
    tested.cleaner.checkpoint(&mut below).unwrap();
    (tested, made[0], made[FILES as usize - 1])
}

/// Damages what leads to an object.
fn damage(disk: &SimDisk, (what, fault): (What, Fault), object: ObjectId) {
    let mut below = open(disk);
    let (_, file) = below.place_of(object).unwrap().unwrap();
    let mapping = below.mapping_of(0).unwrap();
    let mut store = Store::open_last(disk).unwrap();
    let inode = (0..).find(|inode| store.file_with(*inode).unwrap() == Some(file)).unwrap();
    let is_it = |role| match (what, role) {
        (What::Inode, Role::Inodes(first)) => (first..first + 16).contains(&inode),
        (What::Mapping, Role::Data { file, number, .. }) => file == mapping && number == 1,
        _ => false,
    };
    let is_current = |block: &u64| {
        let found = store.role_of(*block).unwrap();
        found.is_current(*block) && is_it(found.role)
    };
    let block = disk.written().into_iter().find(is_current).unwrap();
    disk.fault_at(block, fault, &mut Random::seed_from_u64(block)).unwrap();
}

fn read(below: &mut Below<'_>, object: ObjectId) -> Option<[u8; PAGE]> {
    let mut content = [0; PAGE];
    Lower::read(below, object, 0, &mut content).ok().map(|()| content)
}

#[test]
fn what_comes_to_a_damaged_object_is_dropped() {
    for damaged in ALL {
        let disk = SimDisk::new(4096);
        let (mut tested, first, last) = volume(&disk);
        let mut below = open(&disk);
        for object in [first, last] {
            tested.write(&mut below, object, 2);
        }
        damage(&disk, damaged, last);
        let mut below = open(&disk);
        assert!(tested.cleaner.sync(&mut below, &[last]).is_err(), "{damaged:?}");
        assert!(tested.cleaner.sync(&mut below, &[first]).unwrap(), "{damaged:?}");
        tested.cleaner.checkpoint(&mut below).unwrap();
        for _ in 0..2 {
            assert_eq!(read(&mut below, first), Some([2; PAGE]), "{damaged:?}");
            assert_eq!(read(&mut below, last), None, "{damaged:?}");
            assert!(tested.cleaner.sync(&mut below, &[last]).is_err(), "{damaged:?}");
            assert!(tested.cleaner.sync(&mut below, &[first]).unwrap(), "{damaged:?}");
            below = open(&disk);
        }
    }
}

#[test]
fn what_was_synced_to_a_damaged_object_keeps_nobody_from_mounting() {
    for damaged in ALL {
        let disk = SimDisk::new(4096);
        let (mut tested, first, last) = volume(&disk);
        let mut below = open(&disk);
        for object in [last, first] {
            tested.write(&mut below, object, 2);
        }
        assert!(tested.cleaner.sync(&mut below, &[first, last]).unwrap());
        // The power fails here.
        damage(&disk, damaged, last);
        let mut below = open(&disk);
        replay(&mut below).unwrap();
        assert_eq!(read(&mut below, first), Some([2; PAGE]), "{damaged:?}");
        assert_eq!(read(&mut below, last), None, "{damaged:?}");
        let mut below = open(&disk);
        assert_eq!(read(&mut below, first), Some([2; PAGE]), "{damaged:?}");
    }
}

/// A read that fails, and may succeed later, is no reason to drop anything.
#[test]
fn nothing_is_dropped_for_a_read_that_fails_once() {
    let mut failed = 0;
    let disk = SimDisk::new(4096);
    let (_, first, last) = volume(&disk);
    for after in 0.. {
        let disk = disk.copy(&Power::default());
        let mut below = open(&disk);
        let layout = Layout::new(Capacity { frames: 400, slots: 80 });
        let shared = Shared::new(SimMemory::new(layout.words), layout);
        let next = below.upto();
        shared.initialize(below.epoch() - 1, next, &below.room().unwrap());
        let cleaner = Cleaner::new(shared.clone());
        let publisher = attach(&shared, 1);
        let mut tested = Tested { shared, cleaner, publisher, memo: Memo::default(), unique: 0 };
        for object in [first, last] {
            tested.write(&mut below, object, 2);
        }
        tested.ask(&mut below, |namespace| namespace.unlink(ROOT, &name(7)).unwrap());
        let mut below = open(&disk);
        let before = disk.troubles().errors();
        disk.troubles().fail_one_read(after);
        let taken = tested.cleaner.checkpoint(&mut below);
        let has_failed = disk.troubles().errors() > before;
        disk.troubles().end();
        if taken.is_err() {
            failed += 1;
            below = open(&disk);
            tested.cleaner.checkpoint(&mut below).unwrap();
        }
        let mut below = open(&disk);
        for object in [first, last] {
            assert_eq!(read(&mut below, object), Some([2; PAGE]), "read {after}");
        }
        let report = below.check(&mut |_| {}).unwrap();
        assert_eq!(report.findings, vec![], "read {after}");
        if !has_failed {
            break;
        }
    }
    assert!(failed > 5, "{failed}");
}

/// Objects whose neighbour in a damaged block of the mapping was changed are lost; their names are
/// not.
#[test]
fn names_of_lost_objects_can_be_moved_and_removed() {
    for fault in [Fault::FlippedBit, Fault::Unreadable] {
        let disk = SimDisk::new(4096);
        let (mut tested, _, last) = volume(&disk);
        let mut below = open(&disk);
        tested.ask(&mut below, |namespace| {
            namespace.make(ROOT, b"more", FILE, 0).map(|_| ()).unwrap()
        });
        damage(&disk, (What::Mapping, fault), last);
        let mut below = open(&disk);
        tested.cleaner.checkpoint(&mut below).unwrap();
        assert!(matches!(below.attributes(last), Err(belay_logical::Error::Lost(_))), "{fault:?}");
        // Another process knows nothing of them.
        tested.publisher = attach(&tested.shared, 2);
        let [old, other] = [name(FILES - 2), name(FILES - 3)];
        assert!(tested.is_damaged(&mut below, &old));
        tested.ask(&mut below, |namespace| {
            namespace.rename((ROOT, &old), (ROOT, b"new"), Rename::Replace).unwrap();
            namespace.unlink(ROOT, &other).unwrap();
        });
        tested.cleaner.checkpoint(&mut below).unwrap();
        let mut below = open(&disk);
        tested.publisher = attach(&tested.shared, 3);
        assert!(tested.is_damaged(&mut below, b"new"));
        tested.ask(&mut below, |namespace| namespace.unlink(ROOT, b"new").unwrap());
        tested.cleaner.checkpoint(&mut below).unwrap();
    }
}
