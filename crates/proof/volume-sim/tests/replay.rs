//! The intent log is done again by the code of a checkpoint, which merges what is in it. What comes
//! of that is what comes of its operations if they are applied one by one, and so it is wherever
//! the replay is cut off, and done again.

use belay_cache::appended::parts;
use belay_cache::intent::replay;
use belay_cache::publisher::Draft;
use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{Attributes, Class, Lower, ObjectId, Operation, PAGE, Room, Transaction};
use belay_store::{DataMode, Parameters};
use belay_volume_sim::disk::{Power, SimDisk};
use belay_volume_sim::memory::SimMemory;
use belay_volume_sim::{Random, seeds};
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

const OBJECTS: u64 = 7;
const PAGES: u64 = 6;
const SIZE: u64 = PAGE as u64;

type Below<'d> = Logical<&'d SimDisk>;
type Failure = Error<belay_logical::Error>;
type Page = [u8; PAGE];

/// A file as whoever writes to it knows it. Behind its length there are zeros.
#[derive(Clone, Default)]
struct File {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

type Files = BTreeMap<ObjectId, File>;

/// What publishes, and syncs.
struct Life<'d> {
    random: Random,
    memory: SimMemory,
    layout: Layout,
    module: Publisher<SimMemory>,
    cleaner: Cleaner<SimMemory>,
    below: Below<'d>,
    files: Files,
}

fn open(disk: &SimDisk) -> Below<'_> {
    Logical::open(vec![disk]).unwrap()
}

fn new_disk(in_place: bool) -> SimDisk {
    let disk = SimDisk::with(14_000, &Power::default());
    let data = if in_place { DataMode::InPlace } else { DataMode::OutOfPlace };
    let parameters = Parameters { data, ..Parameters::default().small() };
    Logical::format([9; 16], vec![([1; 16], &disk)], parameters).unwrap();
    disk
}

impl<'d> Life<'d> {
    /// On a volume whose last transaction had some number.
    fn new(seed: u64, disk: &'d SimDisk) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let (mut below, first) = (open(disk), random.random_range(0..1 << 40));
        Lower::checkpoint(&mut below, first).unwrap();
        let layout = Layout::new(Capacity { frames: 600, slots: 100 });
        let memory = SimMemory::new(layout.words);
        let shared = Shared::new(memory.another(), layout);
        shared.initialize(below.epoch() - 1, first, &below.room().unwrap());
        let module = Publisher::attach::<belay_logical::Error>(shared.clone(), 1).unwrap();
        let cleaner = Cleaner::new(shared);
        Self { random, memory, layout, module, cleaner, below, files: Files::new() }
    }

    /// Publishes some operations as one transaction.
    fn transact(&mut self) {
        let mut files = self.files.clone();
        let mut draft = self.module.draft();
        for _ in 0..self.random.random_range(1..4) {
            if let Err(why) = self.operation(&mut draft, &mut files) {
                assert!(matches!(why, Error::Full), "{why}");
                self.module.drop_draft(draft);
                return self.checkpoint();
            }
        }
        match self.module.commit::<belay_logical::Error>(draft, 1, b"") {
            Ok(_) => self.files = files,
            Err(Error::Full) => self.checkpoint(),
            Err(why) => panic!("{why}"),
        }
    }

    fn operation(&mut self, draft: &mut Draft, files: &mut Files) -> Result<(), Failure> {
        let (random, module) = (&mut self.random, &mut self.module);
        let object = ObjectId(random.random_range(0..OBJECTS));
        let attributes = vec![random.random(); random.random_range(0..160)];
        let Some(file) = files.get_mut(&object) else {
            let class = if random.random() { Class::Data } else { Class::Metadata };
            module.create(draft, object, class, &attributes);
            files.insert(object, File::default());
            return Ok(());
        };
        let at = random.random_range(0..PAGES * SIZE);
        // Within a page more often than not.
        let at = if random.random_range(0..4) == 0 { at / SIZE * SIZE } else { at };
        match random.random_range(0..100) {
            0..50 => {
                let end = (at + random.random_range(1..2 * SIZE)).min(PAGES * SIZE);
                let byte = random.random_range(1..255);
                for page in at / SIZE..end.div_ceil(SIZE) {
                    let content = file.pages.entry(page).or_insert([0; PAGE]);
                    let from = at.saturating_sub(page * SIZE) as usize;
                    let to = (end - page * SIZE).min(SIZE) as usize;
                    content[from..to].fill(byte);
                    module.write(draft, object, page, &[*content])?;
                }
                if end > file.size {
                    module.add(draft, &Operation::SetSize { object, size: end });
                    file.size = end;
                }
            }
            50..70 => {
                module.add(draft, &Operation::SetSize { object, size: at });
                file.pages.retain(|page, _| page * SIZE < at);
                // Whoever cuts off within a page writes what is left of it.
                if at < file.size
                    && let Some(content) = file.pages.get_mut(&(at / SIZE))
                {
                    content[(at % SIZE) as usize..].fill(0);
                    module.write(draft, object, at / SIZE, &[*content])?;
                }
                file.size = at;
            }
            70..78 => {
                let (page, count) = (at / SIZE, random.random_range(0..4));
                module.add(draft, &Operation::Punch { object, page, count });
                file.pages.retain(|other, _| !(page..page + count).contains(other));
            }
            78..88 => {
                module.add(draft, &Operation::SetAttributes { object, attributes: &attributes });
            }
            88..94 => {
                // It takes the place of another one.
                let other = ObjectId(random.random_range(0..OBJECTS));
                if other != object && files.remove(&other).is_some() {
                    module.add(draft, &Operation::Delete { object: other });
                    module.add(draft, &Operation::Keep { object });
                }
            }
            _ => {
                module.add(draft, &Operation::Delete { object });
                files.remove(&object);
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self) {
        self.cleaner.checkpoint(&mut self.below).unwrap();
    }

    /// Whoever syncs may have died since the last time, or dies before it has noted what it has
    /// done.
    fn sync(&mut self) {
        let how = self.random.random_range(0..4);
        let view = self.memory.another();
        if how < 2 {
            view.dies_after((how == 0).then_some(0));
            self.cleaner = Cleaner::new(Shared::new(view, self.layout));
        }
        let count = self.random.random_range(1..4);
        let objects = (0..count).map(|_| ObjectId(self.random.random_range(0..OBJECTS)));
        let objects: Vec<ObjectId> = objects.collect();
        let synced = self.cleaner.sync(&mut self.below, &objects).unwrap();
        if how == 0 {
            self.cleaner = Cleaner::new(Shared::new(self.memory.another(), self.layout));
        }
        if !synced {
            self.checkpoint();
        }
    }

    fn live(&mut self) {
        for _ in 0..self.random.random_range(10..60) {
            match self.random.random_range(0..100) {
                0..72 => self.transact(),
                72..98 => self.sync(),
                _ => self.checkpoint(),
            }
        }
        self.sync();
    }
}

/// What is done again as it was done: one operation after the other.
fn one_by_one(below: &mut Below<'_>) -> u64 {
    let upto = Lower::upto(below).unwrap();
    let mut next = upto;
    for append in Lower::intents(below).unwrap() {
        for part in parts(&append).map(Result::unwrap) {
            if part.is_done(upto, next) {
                continue;
            }
            next = next.max(part.number + 1);
            let transaction = Transaction::decode(part.bytes.to_vec()).unwrap();
            for operation in transaction.operations() {
                below.apply(&operation.unwrap()).unwrap();
            }
        }
    }
    if next > upto {
        Lower::checkpoint(below, next).unwrap();
    }
    next
}

/// What is known of an object, and its pages.
type State = BTreeMap<ObjectId, (Attributes, Vec<Page>)>;

/// All that there is when the volume is opened again, and up to which transaction.
fn state(disk: &SimDisk) -> (State, u64) {
    let mut below = open(disk);
    let mut all = State::new();
    for object in (0..OBJECTS).map(ObjectId) {
        if let Some(found) = Lower::attributes(&mut below, object).unwrap() {
            let mut pages = vec![[0; PAGE]; PAGES as usize + 2];
            below.read(object, 0, pages.as_flattened_mut()).unwrap();
            all.insert(object, (found, pages));
        }
    }
    (all, below.upto())
}

fn compare(found: &(State, u64), wanted: &(State, u64), when: &str) {
    assert_eq!(found.1, wanted.1, "{when}");
    for object in (0..OBJECTS).map(ObjectId) {
        match (found.0.get(&object), wanted.0.get(&object)) {
            (None, None) => {}
            (Some((known, pages)), Some((wanted, wanted_pages))) => {
                assert_eq!(known, wanted, "{when}: {object}");
                for (number, (page, wanted)) in pages.iter().zip(wanted_pages).enumerate() {
                    let at = page.iter().zip(wanted).position(|(one, other)| one != other);
                    assert_eq!(at, None, "{when}: page {number} of {object} differs there");
                }
            }
            (found, _) => panic!("{when}: there is {object}: {}", found.is_some()),
        }
    }
}

/// A layer below whose user dies at some step.
struct Dying<'a, 'd> {
    below: &'a mut Below<'d>,
    left: u64,
    /// Pages that were brought.
    pages: u64,
}

impl Dying<'_, '_> {
    fn step(&mut self) -> Result<(), belay_logical::Error> {
        let dead = belay_logical::Error::NoVolume("who asks is dead".to_owned());
        self.left = self.left.checked_sub(1).ok_or(dead)?;
        Ok(())
    }
}

impl Lower for Dying<'_, '_> {
    type Error = belay_logical::Error;

    fn epoch(&mut self) -> Result<u64, Self::Error> {
        Lower::epoch(self.below)
    }
    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Self::Error> {
        Lower::attributes(self.below, object)
    }
    fn is_damaged(why: &Self::Error) -> bool {
        <Below<'_> as Lower>::is_damaged(why)
    }
    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Self::Error> {
        self.below.read(object, page, out)
    }
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Self::Error> {
        self.step()?;
        if let Operation::Write { data, .. } = operation {
            self.pages += data.len() as u64 / SIZE;
        }
        self.below.apply(operation)
    }
    fn checkpoint(&mut self, upto: u64) -> Result<u64, Self::Error> {
        self.step()?;
        let taken = Lower::checkpoint(self.below, upto)?;
        self.step()?;
        Ok(taken)
    }
    fn upto(&mut self) -> Result<u64, Self::Error> {
        Lower::upto(self.below)
    }
    fn room(&mut self) -> Result<Room, Self::Error> {
        self.below.room()
    }
    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Self::Error> {
        self.below.append_intent(bytes)
    }
    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Self::Error> {
        Lower::intents(self.below)
    }
}

/// Compares what comes of the log on a disk; gives how many steps a replay has, and how many pages
/// it brings.
fn compare_replays(disk: &SimDisk) -> (u64, u64) {
    let copy = || disk.copy(&Power::default());
    let oracle = copy();
    let next = one_by_one(&mut open(&oracle));
    let wanted = state(&oracle);
    assert_eq!(wanted.1, next);
    let whole = copy();
    let mut below = open(&whole);
    let mut counted = Dying { below: &mut below, left: u64::MAX, pages: 0 };
    assert_eq!(replay(&mut counted).unwrap(), next);
    let (steps, pages) = (u64::MAX - counted.left, counted.pages);
    compare(&state(&whole), &wanted, "at once");
    let report = open(&whole).check(&mut |_| {}).unwrap();
    assert_eq!(report.findings, vec![]);
    for step in 0..steps {
        for lives_on in [false, true] {
            let when = format!("cut off at {step} of {steps}, the stores live on: {lives_on}");
            let cut = copy();
            let mut below = open(&cut);
            let died = replay(&mut Dying { below: &mut below, left: step, pages: 0 });
            assert!(died.is_err(), "{when}");
            if !lives_on {
                below = open(&cut);
            }
            assert_eq!(replay(&mut below).unwrap(), next, "{when}");
            drop(below);
            compare(&state(&cut), &wanted, &when);
        }
    }
    (steps, pages)
}

#[test]
fn a_replay_gives_what_operations_give_one_by_one() {
    let (seeds, mut steps, mut pages) = (seeds(60), 0, 0);
    for seed in seeds.clone() {
        let compared = catch_unwind(AssertUnwindSafe(|| {
            let disk = new_disk(seed % 2 == 1);
            Life::new(seed, &disk).live();
            // All of the log is durable.
            disk.power_failure(&mut Random::seed_from_u64(!seed));
            compare_replays(&disk)
        }));
        let Ok(compared) = compared else {
            panic!(
                "seed {seed}\nagain: BELAY_SEED={seed} cargo test -p belay-volume-sim --test replay"
            );
        };
        (steps, pages) = (steps + compared.0, pages + compared.1);
    }
    println!("{steps} steps, {pages} pages");
    if seeds.end - seeds.start > 1 {
        assert!(steps > 500 && pages > 200, "{steps} steps, {pages} pages");
    }
}

/// The page that a file ends within is in the log as it was before, if the file was not synced
/// since.
#[test]
fn what_was_cut_off_after_a_sync_does_not_come_back() {
    let disk = new_disk(false);
    let (file, other) = (ObjectId(3), ObjectId(5));
    let mut life = Life::new(1, &disk);
    let publish = |life: &mut Life<'_>, object, page: Page, sizes: &[u64]| {
        let mut draft = life.module.draft();
        if Lower::attributes(&mut life.below, object).unwrap().is_none() && sizes.len() == 1 {
            life.module.create(&mut draft, object, Class::Data, b"");
        }
        sizes.iter().for_each(|&size| {
            life.module.add(&mut draft, &Operation::SetSize { object, size });
        });
        life.module.write::<belay_logical::Error>(&mut draft, object, 0, &[page]).unwrap();
        life.module.commit::<belay_logical::Error>(draft, 1, b"").unwrap();
    };
    publish(&mut life, file, [7; PAGE], &[SIZE]);
    assert!(life.cleaner.sync(&mut life.below, &[file]).unwrap());
    let mut left = [0; PAGE];
    left[..100].fill(7);
    publish(&mut life, file, left, &[100, SIZE]);
    publish(&mut life, other, [1; PAGE], &[SIZE]);
    assert!(life.cleaner.sync(&mut life.below, &[other]).unwrap());
    drop(life);
    compare_replays(&disk);
    replay(&mut open(&disk)).unwrap();
    let mut page = [1; PAGE];
    open(&disk).read(file, 0, &mut page).unwrap();
    assert_eq!(page, left);
}
