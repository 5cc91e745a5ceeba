//! Direct I/O: it is answered when it is durable, and undone as a whole if it cannot be made that,
//! whoever dies meanwhile.

use belay_cache::answers::Answers;
use belay_cache::intent::replay;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{ObjectId, PAGE};
use belay_posix::dispatch::{Direct, Module, Outcome};
use belay_posix::{Caller, Time};
use belay_store::Parameters;
use belay_volume_sim::disk::{Power, SimDisk, Trouble};
use belay_volume_sim::memory::SimMemory;
use belay_wire::abi::{CreateIn, MkdirIn, WriteIn};
use belay_wire::build::{self, Ids};
use belay_wire::{AttrOut, EntryOut, Opcode, ROOT_ID, Reply};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
const SMALL: Capacity = Capacity { frames: 64, slots: 16 };

type Below<'d> = Logical<&'d SimDisk>;

/// What a disk does when nothing can be made durable.
const TROUBLES: [Trouble; 3] = [Trouble::Writes, Trouble::Flushes, Trouble::LostWrites];

struct Tested<'d> {
    disk: &'d SimDisk,
    memory: SimMemory,
    layout: Layout,
    module: Module<SimMemory, Below<'d>>,
    /// What the module sees of the memory.
    view: SimMemory,
    cleaner: Cleaner<SimMemory>,
    life: u32,
    unique: u64,
    file: u64,
}

/// Content, length, and when it was modified and changed.
type State = (Vec<u8>, u64, [u64; 2]);

fn open(disk: &SimDisk) -> Below<'_> {
    Logical::open(vec![disk]).unwrap()
}

fn attach<'d>(
    memory: &SimMemory,
    layout: Layout,
    life: u32,
    below: Below<'d>,
) -> (Module<SimMemory, Below<'d>>, SimMemory) {
    let view = memory.another().traced();
    let shared = Shared::new(view.clone(), layout);
    let publisher = Publisher::attach::<belay_logical::Error>(shared, life).unwrap();
    (Module::new(publisher.keeping(1 << 20), below), view)
}

impl<'d> Tested<'d> {
    /// A volume with a file of some pages and a part of one, in a checkpoint.
    fn new(disk: &'d SimDisk, capacity: Capacity) -> Self {
        let parameters = Parameters::default().small();
        let below = Logical::format([9; 16], vec![([1; 16], disk)], parameters).unwrap();
        let layout = Layout::new(capacity);
        let memory = SimMemory::new(layout.words);
        let shared = Shared::new(memory.another(), layout);
        shared.initialize(below.epoch() - 1, 0, &below.room().unwrap());
        let (mut module, view) = attach(&memory, layout, 1, below);
        module.format(Caller::default(), belay_volume_sim::SECRET).unwrap();
        let cleaner = Cleaner::new(shared);
        let (life, unique) = (1, 0);
        let mut this = Self { disk, memory, layout, module, view, cleaner, life, unique, file: 0 };
        this.file = this.create("file");
        this.write(this.file, 0, &[1; 3 * PAGE + 100], 0);
        this.checkpoint();
        this
    }

    fn ids(&mut self, nodeid: u64) -> Ids {
        self.unique += 2;
        Ids { unique: self.unique, nodeid, ..Ids::default() }
    }

    fn now(&self) -> Time {
        Time { seconds: self.unique as i64, nanoseconds: 0 }
    }

    fn handle(&mut self, message: &[u8]) -> Outcome {
        let now = self.now();
        self.module.handle(message, now)
    }

    fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        match self.handle(message) {
            Outcome::Reply(reply) => {
                let reply = Reply::parse(&reply).unwrap();
                assert_eq!(reply.errno(), None);
                reply.body.to_vec()
            }
            outcome => panic!("{outcome:?}"),
        }
    }

    fn create(&mut self, name: &str) -> u64 {
        let mut head = CreateIn::new_zeroed();
        head.mode = 0o100_644;
        let name = [name.as_bytes(), &[0]].concat();
        let ids = self.ids(ROOT_ID);
        let body = self.ask(&build::request(ids, Opcode::CREATE, &[head.as_bytes(), &name]));
        EntryOut::read_from_prefix(&body).unwrap().0.nodeid
    }

    fn write_of(&mut self, node: u64, at: u64, data: &[u8], flags: u32) -> Vec<u8> {
        let mut head = WriteIn::new_zeroed();
        (head.offset, head.size, head.flags) = (at, data.len() as u32, flags);
        build::request(self.ids(node), Opcode::WRITE, &[head.as_bytes(), data])
    }

    fn write(&mut self, node: u64, at: u64, data: &[u8], flags: u32) {
        let message = self.write_of(node, at, data, flags);
        self.ask(&message);
    }

    /// Writes by direct I/O.
    fn direct(&mut self, at: u64, data: &[u8]) -> Direct {
        let message = self.write_of(self.file, at, data, O_DIRECT);
        match self.handle(&message) {
            Outcome::Direct(direct) => direct,
            outcome => panic!("{outcome:?}"),
        }
    }

    fn read(&mut self) -> Vec<u8> {
        let (ids, node) = (self.ids(self.file), self.file);
        assert_eq!(ids.nodeid, node);
        self.ask(&build::read(ids, 0, 0, 1 << 16))
    }

    fn state(&mut self) -> State {
        let ids = self.ids(self.file);
        let body = self.ask(&build::getattr(ids, None));
        let attr = AttrOut::read_from_prefix(&body).unwrap().0.attr;
        (self.read(), attr.size, [attr.mtime, attr.ctime])
    }

    /// Whether it could be made durable.
    fn sync(&mut self, direct: &Direct) -> bool {
        let done = self.cleaner.sync(self.module.below(), &direct.objects);
        done.is_ok_and(|appended| appended)
    }

    /// The disk is well again.
    fn heal(&mut self) {
        self.disk.troubles().end();
        *self.module.below() = open(self.disk);
    }

    fn checkpoint(&mut self) {
        self.cleaner.checkpoint(self.module.below()).unwrap();
    }

    /// The module dies, and begins again.
    fn die(&mut self) {
        self.life += 1;
        let below = open(self.disk);
        (self.module, self.view) = attach(&self.memory, self.layout, self.life, below);
    }

    fn shared(&self) -> Shared<SimMemory> {
        Shared::new(self.memory.another(), self.layout)
    }

    /// The power fails: what is left is on the disk.
    fn lose_power(&mut self) {
        self.disk.power_failure_with(0, &mut rand::SeedableRng::seed_from_u64(1));
        self.memory.clear();
        let mut below = open(self.disk);
        let next = replay(&mut below).unwrap();
        self.shared().initialize(below.epoch() - 1, next, &below.room().unwrap());
        self.life = 0;
        self.die();
        self.cleaner = Cleaner::new(self.shared());
    }

    /// Nothing is left in the memory after a checkpoint.
    fn is_empty(&mut self) {
        self.checkpoint();
        self.die();
        let shared = self.shared();
        for pool in [shared.frames(), shared.cells()] {
            assert_eq!(pool.free(), pool.count());
        }
    }
}

#[test]
fn what_was_answered_outlives_the_power() {
    let disk = SimDisk::with(20_000, &Power::default());
    let mut tested = Tested::new(&disk, SMALL);
    let direct = tested.direct(PAGE as u64, &[2; 4 * PAGE]);
    assert!(tested.sync(&direct));
    tested.module.settle(direct.number);
    let state = tested.state();
    assert_eq!(state.1, 5 * PAGE as u64);
    assert!(state.0[..PAGE] == [1; PAGE] && state.0[PAGE..] == [2; 4 * PAGE]);
    tested.lose_power();
    assert!(tested.state() == state);
    tested.is_empty();
}

/// What of a file direct I/O writes: over old pages, a part of a page, behind the end, and in the
/// last page behind the end.
const PLACES: [(u64, usize); 5] = [
    (0, 2 * PAGE),
    (512, 512),
    (PAGE as u64, 5 * PAGE),
    (9 * PAGE as u64, PAGE),
    (3 * PAGE as u64 + 200, 300),
];

#[test]
fn what_cannot_be_made_durable_is_undone() {
    for (trouble, (at, length)) in
        TROUBLES.into_iter().flat_map(|trouble| PLACES.map(|place| (trouble, place)))
    {
        for by_checkpoint in [false, true] {
            let disk = SimDisk::with(20_000, &Power::default());
            let mut tested = Tested::new(&disk, SMALL);
            let before = tested.state();
            disk.troubles().begin(trouble, 0);
            let direct = tested.direct(at, &vec![2; length]);
            assert!(!tested.sync(&direct), "{trouble:?}");
            assert!(tested.module.undo(direct.number).unwrap());
            tested.heal();
            assert!(tested.state() == before, "{trouble:?}, {length} at {at}");
            // Nor is there an answer: none of it has happened.
            assert_eq!(Answers::default().to(&tested.shared(), direct.unique), None);
            if by_checkpoint {
                tested.checkpoint();
                assert_eq!(Answers::default().to(&tested.shared(), direct.unique), None);
            } else {
                let other = tested.create("other");
                tested.write(other, 0, b"other", 0);
                let objects = [ObjectId(other)];
                assert!(tested.cleaner.sync(tested.module.below(), &objects).unwrap());
            }
            assert!(tested.state() == before, "{trouble:?}, {length} at {at}");
            tested.lose_power();
            assert!(tested.state() == before, "{trouble:?}, {length} at {at}");
            tested.is_empty();
        }
    }
}

/// A checkpoint that reaches up to the write and not up to what undoes it is taken in between.
#[test]
fn what_was_undone_stays_so_if_a_checkpoint_has_what_was_done() {
    let disk = SimDisk::with(20_000, &Power::default());
    let mut tested = Tested::new(&disk, SMALL);
    let before = tested.state();
    let direct = tested.direct(0, &[2; 5 * PAGE]);
    // The stores take it, and the cache dies before it notes that.
    let view = tested.memory.another();
    view.dies_after(Some(2));
    let cleaner = Cleaner::new(Shared::new(view.clone(), tested.layout));
    let epoch = tested.module.below().epoch();
    let _ = cleaner.checkpoint(tested.module.below());
    assert!(view.is_dead() && tested.module.below().epoch() > epoch);
    assert!(tested.shared().sealed().is_some_and(|sealed| sealed > direct.number));
    assert!(tested.module.undo(direct.number).unwrap());
    tested.checkpoint();
    assert!(tested.state() == before);
    assert_eq!(Answers::default().to(&tested.shared(), direct.unique), None);
    tested.lose_power();
    assert!(tested.state() == before);
    tested.is_empty();
}

#[test]
fn what_a_checkpoint_has_is_not_undone() {
    stays_once_durable(|tested, _| tested.checkpoint());
}

/// Another sync has had it made durable, and its own could not be.
#[test]
fn what_the_intent_log_has_is_not_undone() {
    stays_once_durable(|tested, direct| assert!(tested.sync(direct)));
}

fn stays_once_durable(made: impl FnOnce(&mut Tested<'_>, &Direct)) {
    let disk = SimDisk::with(20_000, &Power::default());
    let mut tested = Tested::new(&disk, SMALL);
    let direct = tested.direct(0, &[2; 5 * PAGE]);
    made(&mut tested, &direct);
    assert!(!tested.module.undo(direct.number).unwrap());
    assert!(tested.read() == [2; 5 * PAGE]);
    assert!(Answers::default().to(&tested.shared(), direct.unique).is_some());
    tested.lose_power();
    assert!(tested.read() == [2; 5 * PAGE]);
    tested.is_empty();
}

/// Nobody sees what may be undone, nor changes it; what has to do with other files goes on.
#[test]
fn a_file_is_held_until_it_is_known_what_is_in_it() {
    let disk = SimDisk::with(20_000, &Power::default());
    let mut tested = Tested::new(&disk, SMALL);
    let other = tested.create("other");
    let file = ObjectId(tested.file);
    let direct = tested.direct(0, &[2; PAGE]);
    let messages = |tested: &mut Tested<'_>| {
        [
            build::read(tested.ids(file.0), 0, 0, 10),
            build::getattr(tested.ids(file.0), None),
            build::lookup(tested.ids(ROOT_ID), b"file"),
            tested.write_of(file.0, 0, b"text", 0),
            tested.write_of(file.0, 0, b"text", O_DIRECT),
            build::unlink(tested.ids(ROOT_ID), b"file"),
        ]
    };
    for message in messages(&mut tested) {
        let outcome = tested.handle(&message);
        assert!(matches!(outcome, Outcome::Held(object) if object == file), "{outcome:?}");
    }
    tested.write(other, 0, b"other", 0);
    // A listing has its name, and waits for none of its files.
    let list = build::readdirplus(tested.ids(ROOT_ID), 0, 0, 4096);
    let listed = tested.ask(&list);
    assert!(
        [&b"file"[..], b"other"]
            .iter()
            .all(|name| listed.windows(name.len()).any(|at| at == *name))
    );
    assert!(tested.sync(&direct));
    tested.module.settle(direct.number);
    tested.write(file.0, 0, b"text", 0);
    tested.is_empty();
}

/// The module dies at any store: its next life makes what was published durable, or undoes it,
/// before it tells of it.
#[test]
fn who_dies_before_it_is_durable_leaves_it_to_the_next_life() {
    let (mut undone, mut kept, mut none) = (0, 0, 0);
    let all = {
        let disk = SimDisk::with(20_000, &Power::default());
        let mut tested = Tested::new(&disk, SMALL);
        let before = tested.view.trace().len();
        tested.direct(0, &[2; 4 * PAGE]);
        (tested.view.trace().len() - before) as u64
    };
    // Most stores are those of pages.
    let some = (0..=all).filter(|stores| stores % 97 == 0 || stores + 250 > all);
    for fails in [false, true] {
        for stores in some.clone() {
            let disk = SimDisk::with(20_000, &Power::default());
            let mut tested = Tested::new(&disk, SMALL);
            let before = tested.state();
            let message = tested.write_of(tested.file, 0, &[2; 4 * PAGE], O_DIRECT);
            tested.view.dies_after(Some(stores));
            let _ = tested.handle(&message);
            let unique = tested.unique;
            // It dies twice.
            tested.die();
            let found = tested.module.unsettled();
            tested.die();
            assert_eq!(tested.module.unsettled(), found);
            if fails {
                disk.troubles().begin(Trouble::Flushes, 0);
            }
            let answer = Answers::default().to(&tested.shared(), unique).is_some();
            assert_eq!(found.len(), usize::from(answer), "{stores} stores");
            for direct in &found {
                assert!(tested.module.is_unsettled(unique));
                match tested.sync(direct) {
                    true => tested.module.settle(direct.number),
                    false => assert!(tested.module.undo(direct.number).unwrap()),
                }
            }
            tested.heal();
            let is_done = Answers::default().to(&tested.shared(), unique).is_some();
            assert_eq!(is_done, answer && !fails, "{stores} stores");
            match found.is_empty() {
                true => none += 1,
                false if is_done => kept += 1,
                false => undone += 1,
            }
            let after = tested.state();
            assert_eq!(after == before, !is_done, "{stores} stores");
            // It is known to each life after that.
            tested.die();
            assert_eq!(tested.module.unsettled(), []);
            assert!(tested.state() == after, "{stores} stores");
            if is_done {
                tested.lose_power();
                assert!(tested.state() == after, "{stores} stores");
            }
            tested.is_empty();
        }
    }
    assert!(undone > 0 && kept > 0 && none > 200, "{undone}, {kept}, {none}");
}

/// What undoes it finds room whatever others have published meanwhile, and what they are told of
/// room is true.
#[test]
fn what_undoes_has_its_room() {
    let few = |frames, slots| Capacity { frames, slots };
    // The memory is full, the log is, and the disk.
    for (blocks, capacity) in [(20_000, few(24, 64)), (20_000, few(400, 8)), (700, few(4000, 2000))]
    {
        let disk = SimDisk::with(blocks, &Power::default());
        let mut tested = Tested::new(&disk, capacity);
        let other = tested.create("other");
        let before = tested.state();
        let direct = tested.direct(0, &[2; 5 * PAGE]);
        let mut published = 0;
        loop {
            let message = tested.write_of(other, published * PAGE as u64, &[3; PAGE], 0);
            match tested.handle(&message) {
                Outcome::Reply(_) => published += 1,
                Outcome::Full => break,
                outcome => panic!("{outcome:?}"),
            }
        }
        assert!(published > 0);
        let head = MkdirIn { mode: 0o755, umask: 0 };
        let ids = tested.ids(ROOT_ID);
        let message = build::request(ids, Opcode::MKDIR, &[head.as_bytes(), b"more\0"]);
        assert!(matches!(tested.handle(&message), Outcome::Full));
        assert!(tested.module.undo(direct.number).unwrap(), "{capacity:?}");
        assert!(tested.state() == before, "{capacity:?}");
        tested.is_empty();
        assert!(tested.state() == before, "{capacity:?}");
    }
}
