//! What a publisher keeps of what it has read: how often it asks the layer below, and that it never
//! says anything old.

use belay_cache::{Attributes, Capacity, Cleaner, Layout, Lower, Publisher, Shared};
use belay_object::{Class, Credit, ObjectId, Operation, PAGE, Room};
use belay_volume_sim::memory::SimMemory;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, thiserror::Error)]
#[error("this page is lost")]
struct Lost;

/// A layer that counts what it is asked for.
#[derive(Default)]
struct Below {
    epoch: u64,
    upto: u64,
    objects: BTreeMap<ObjectId, (Attributes, BTreeMap<u64, u8>)>,
    lost: BTreeSet<u64>,
    /// Checkpoints fail.
    is_ill: bool,
    /// The first page of each read, and how many.
    reads: Vec<(u64, usize)>,
    asked: u64,
}

impl Lower for Below {
    type Error = Lost;

    fn epoch(&mut self) -> Result<u64, Lost> {
        Ok(self.epoch + 1)
    }

    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Lost> {
        self.asked += 1;
        Ok(self.objects.get(&object).map(|(found, _)| found.clone()))
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Lost> {
        self.reads.push((page, out.len() / PAGE));
        let (_, pages) = &self.objects[&object];
        for (number, content) in (page..).zip(out.chunks_mut(PAGE)) {
            if self.lost.contains(&number) {
                return Err(Lost);
            }
            content.fill(pages.get(&number).copied().unwrap_or(0));
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Lost> {
        let object = operation.object();
        match *operation {
            Operation::Create { class, attributes, .. } => {
                let found = Attributes { size: 0, class, attributes: attributes.to_vec() };
                self.objects.insert(object, (found, BTreeMap::new()));
            }
            Operation::Delete { .. } => {
                self.objects.remove(&object);
            }
            Operation::Write { page, data, .. } => {
                let (_, pages) = self.objects.get_mut(&object).unwrap();
                pages.extend((page..).zip(data.chunks(PAGE).map(|content| content[0])));
            }
            Operation::SetSize { size, .. } => {
                let (found, pages) = self.objects.get_mut(&object).unwrap();
                found.size = size;
                pages.retain(|page, _| page * (PAGE as u64) < size);
            }
            Operation::SetAttributes { attributes, .. } => {
                self.objects.get_mut(&object).unwrap().0.attributes = attributes.to_vec();
            }
            Operation::Punch { page, count, .. } => {
                let (_, pages) = self.objects.get_mut(&object).unwrap();
                pages.retain(|other, _| !(page..page + count).contains(other));
            }
            Operation::Pages { .. } | Operation::Keep { .. } => {
                panic!("what is the cache's came down")
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64, Lost> {
        if self.is_ill {
            return Err(Lost);
        }
        (self.epoch, self.upto) = (self.epoch + 1, upto);
        Ok(self.epoch)
    }

    fn upto(&mut self) -> Result<u64, Lost> {
        Ok(self.upto)
    }

    fn room(&mut self) -> Result<Room, Lost> {
        Ok(ample())
    }

    fn append_intent(&mut self, _: &[u8]) -> Result<bool, Lost> {
        Ok(true)
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Lost> {
        Ok(Vec::new())
    }
}

struct Cache {
    shared: Shared<SimMemory>,
    below: Below,
    one: Publisher<SimMemory>,
}

const FILE: ObjectId = ObjectId(20);

impl Cache {
    fn new(kept: usize) -> Self {
        let layout = Layout::new(Capacity { frames: 500, slots: 50 });
        let shared = Shared::new(SimMemory::new(layout.words), layout);
        shared.initialize(0, 0, &ample());
        let one = Publisher::attach::<Lost>(shared.clone(), 1).unwrap().keeping(kept);
        Self { shared, below: Below::default(), one }
    }

    /// With a file of so many pages, each of which has its number in it.
    fn with_file(kept: usize, class: Class, pages: u64) -> Self {
        let mut this = Self::new(kept);
        let mut draft = this.one.draft();
        this.one.create(&mut draft, FILE, class, b"first");
        let content: Vec<_> = (0..pages).map(|page| [page as u8; PAGE]).collect();
        this.one.write::<Lost>(&mut draft, FILE, 0, &content).unwrap();
        this.one.add(&mut draft, &Operation::SetSize { object: FILE, size: pages * PAGE as u64 });
        this.one.commit::<Lost>(draft, 1, b"").unwrap();
        this.checkpoint();
        this
    }

    fn checkpoint(&mut self) {
        Cleaner::new(self.shared.clone()).checkpoint(&mut self.below).unwrap();
        self.below.reads.clear();
        self.below.asked = 0;
    }

    /// One of several processes that publish.
    fn another(&self) -> Publisher<SimMemory> {
        Publisher::attach::<Lost>(self.shared.clone(), 1).unwrap()
    }

    fn publish(&mut self, operation: &Operation<'_>) {
        let mut draft = self.one.draft();
        self.one.add(&mut draft, operation);
        self.one.commit::<Lost>(draft, 1, b"").unwrap();
    }

    fn read(&mut self, page: u64) -> Option<u8> {
        let mut out = [0; PAGE];
        self.one.read(&mut self.below, FILE, page, &mut out).ok()?;
        assert_eq!(out, [out[0]; PAGE]);
        Some(out[0])
    }

    fn attributes(&mut self) -> Option<Attributes> {
        self.one.attributes(&mut self.below, FILE).unwrap()
    }
}

const MUCH: usize = 1 << 20;

/// Room for all that is done here.
fn ample() -> Room {
    let credit = Credit { blocks: 1 << 20, pairs: 1 << 19 };
    Room { capacity: 1 << 20, free: 1 << 20, least: 1 << 20, stores: 1, credit }
}

#[test]
fn a_file_is_read_ahead_from_its_beginning() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 80);
    for page in 0..80 {
        assert_eq!(cache.read(page), Some(page as u8));
    }
    assert_eq!(cache.below.reads, [(0, 33), (33, 33), (66, 14)]);
    for page in 0..80 {
        assert_eq!(cache.read(page), Some(page as u8));
    }
    assert_eq!(cache.below.reads.len(), 3);
    assert!(cache.below.asked <= 1);
}

#[test]
fn what_is_read_here_and_there_is_not_read_ahead() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 80);
    for page in [70, 40, 10, 41] {
        assert_eq!(cache.read(page), Some(page as u8));
    }
    assert_eq!(cache.below.reads, [(70, 1), (40, 1), (10, 1), (41, 29)]);
    // Nor are directories, nor what cannot be kept.
    let mut cache = Cache::with_file(MUCH, Class::Metadata, 80);
    assert_eq!((cache.read(0), cache.read(1)), (Some(0), Some(1)));
    assert_eq!(cache.below.reads, [(0, 1), (1, 1)]);
    let mut cache = Cache::with_file(0, Class::Data, 80);
    assert_eq!((cache.read(1), cache.read(1)), (Some(1), Some(1)));
    assert_eq!(cache.below.reads, [(1, 1), (1, 1)]);
}

#[test]
fn a_lost_page_is_no_loss_of_those_before_it() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 40);
    cache.below.lost.insert(7);
    for page in 0..40 {
        let wanted = (page != 7).then_some(page as u8);
        assert_eq!(cache.read(page), wanted);
    }
    // It is asked for again, and may have been healed.
    cache.below.lost.clear();
    assert_eq!(cache.read(7), Some(7));
}

#[test]
fn what_the_log_has_is_not_read_over() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 40);
    let mut draft = cache.one.draft();
    cache.one.write::<Lost>(&mut draft, FILE, 5, &[[99; PAGE]]).unwrap();
    cache.one.commit::<Lost>(draft, 2, b"").unwrap();
    assert_eq!((cache.read(0), cache.read(5), cache.read(6)), (Some(0), Some(99), Some(6)));
    assert_eq!(cache.below.reads, [(0, 5), (6, 1)]);
    cache.checkpoint();
    assert_eq!((cache.read(4), cache.read(5)), (Some(4), Some(99)));
}

#[test]
fn nothing_old_is_said_before_and_after_it_is_durable() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 40);
    let read = |cache: &mut Cache| (0..40).map(|page| cache.read(page).unwrap()).collect();
    let all: Vec<u8> = read(&mut cache);
    // Each of these, looked at at once, and when it is durable.
    let size = |pages: u64| Operation::SetSize { object: FILE, size: pages * PAGE as u64 };
    let mut wanted = all;
    let operations = [
        Operation::Punch { object: FILE, page: 3, count: 2 },
        size(20),
        size(40),
        Operation::SetAttributes { object: FILE, attributes: b"second" },
    ];
    for operation in &operations {
        match *operation {
            Operation::Punch { page, count, .. } => {
                wanted[page as usize..(page + count) as usize].fill(0);
            }
            Operation::SetSize { size, .. } => wanted[(size / PAGE as u64) as usize..].fill(0),
            _ => {}
        }
        cache.publish(operation);
        let found: Vec<u8> = read(&mut cache);
        assert_eq!(found, wanted, "{operation:?}");
        let attributes = cache.attributes();
        cache.checkpoint();
        let found: Vec<u8> = read(&mut cache);
        assert_eq!(found, wanted, "{operation:?}");
        assert_eq!(cache.attributes(), attributes);
        assert_eq!(cache.below.objects[&FILE].0, attributes.unwrap());
    }
    assert_eq!(cache.attributes().unwrap().attributes, b"second");
    // It is removed, and another one has its number.
    cache.publish(&Operation::Delete { object: FILE });
    assert_eq!(cache.attributes(), None);
    cache.checkpoint();
    assert_eq!((cache.attributes(), cache.attributes()), (None, None));
    assert_eq!(cache.below.asked, 1);
    let mut draft = cache.one.draft();
    cache.one.create(&mut draft, FILE, Class::Data, b"third");
    cache.one.add(&mut draft, &size(40));
    cache.one.commit::<Lost>(draft, 3, b"").unwrap();
    let found: Vec<u8> = read(&mut cache);
    assert_eq!(found, [0; 40]);
    cache.checkpoint();
    let found: Vec<u8> = read(&mut cache);
    assert_eq!(found, [0; 40]);
    assert_eq!(cache.attributes().unwrap().attributes, b"third");
    // Nobody had to ask for what was published here.
    assert_eq!(cache.below.asked, 0);
}

#[test]
fn what_others_publish_is_seen_even_if_it_is_durable_by_then() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 40);
    let mut other = cache.another();
    for (round, durable_first) in [false, true, false, true].into_iter().enumerate() {
        let byte = 100 + round as u8;
        assert_eq!(cache.read(5), Some(if round == 0 { 5 } else { byte - 1 }));
        let mut draft = other.draft();
        other.write::<Lost>(&mut draft, FILE, 5, &[[byte; PAGE]]).unwrap();
        let attributes = [byte];
        other.add(&mut draft, &Operation::SetAttributes { object: FILE, attributes: &attributes });
        other.commit::<Lost>(draft, 7, b"").unwrap();
        if durable_first {
            cache.checkpoint();
        }
        assert_eq!(cache.read(5), Some(byte));
        assert_eq!(cache.attributes().unwrap().attributes, attributes);
    }
}

/// What is published after a checkpoint was sealed is not in that one: whoever wants it durable
/// must not be told so when that one is ended.
#[test]
fn a_checkpoint_after_one_that_failed_has_all_that_is_published() {
    let mut cache = Cache::with_file(MUCH, Class::Data, 4);
    let set = |byte: u8| [byte; 3];
    cache.publish(&Operation::SetAttributes { object: FILE, attributes: &set(1) });
    cache.below.is_ill = true;
    let cleaner = Cleaner::new(cache.shared.clone());
    assert!(cleaner.checkpoint(&mut cache.below).is_err());
    cache.publish(&Operation::SetAttributes { object: FILE, attributes: &set(2) });
    cache.below.is_ill = false;
    cleaner.checkpoint(&mut cache.below).unwrap();
    assert!(cache.shared.is_empty());
    assert_eq!(cache.below.objects[&FILE].0.attributes, set(2));
}
