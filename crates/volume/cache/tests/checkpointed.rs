//! A life of a publisher begins while checkpoints are taken: it sees all that was published, and finds all answers.

mod words;

use belay_cache::answers::Answers;
use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_object::{Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Room};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use words::Words;

/// What the layer below has: of each object its first page, by its first byte.
#[derive(Default)]
struct Kept {
    epoch: u64,
    upto: u64,
    objects: BTreeMap<ObjectId, u8>,
}

#[derive(Clone, Default)]
struct Below(Arc<Mutex<Kept>>);

impl Below {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }
}

fn ample() -> Room {
    let credit = Credit { blocks: 1 << 30, pairs: 1 << 29 };
    Room { capacity: 1 << 30, free: 1 << 30, available: 1 << 30, credit }
}

impl Lower for Below {
    type Error = Infallible;

    fn epoch(&mut self) -> Result<u64, Infallible> {
        Ok(self.kept().epoch + 1)
    }
    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Infallible> {
        let found = self.kept().objects.get(&object).copied();
        let there = |_| Attributes { size: 4096, class: Class::Data, attributes: Vec::new() };
        Ok(found.map(there))
    }
    fn read(&mut self, object: ObjectId, _: u64, out: &mut [u8]) -> Result<(), Infallible> {
        out.fill(self.kept().objects[&object]);
        Ok(())
    }
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Infallible> {
        match *operation {
            Operation::Create { object, .. } => {
                self.kept().objects.insert(object, 0);
            }
            Operation::Write { object, data, .. } => {
                self.kept().objects.insert(object, data[0]);
            }
            Operation::Delete { object } => {
                self.kept().objects.remove(&object);
            }
            _ => {}
        }
        Ok(())
    }
    fn checkpoint(&mut self, upto: u64) -> Result<u64, Infallible> {
        let mut kept = self.kept();
        kept.epoch += 1;
        kept.upto = upto;
        Ok(kept.epoch)
    }
    fn upto(&mut self) -> Result<u64, Infallible> {
        Ok(self.kept().upto)
    }
    fn room(&mut self) -> Result<Room, Infallible> {
        Ok(ample())
    }
    fn append_intent(&mut self, _: &[u8]) -> Result<bool, Infallible> {
        Ok(true)
    }
    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Infallible> {
        Ok(Vec::new())
    }
}

/// Ends the checkpoints, also when something fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_life_that_begins_amid_checkpoints_sees_all() {
    const OBJECTS: u64 = 40;
    let layout = Layout::new(Capacity { frames: 4000, slots: 1000 });
    let shared = Shared::new(Arc::new(Words::new(layout.words)), layout);
    shared.initialize(0, 0, &ample());
    let below = Below::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cleaner = Cleaner::new(shared.clone());
            let mut below = below.clone();
            while !over.load(SeqCst) {
                cleaner.checkpoint(&mut below).unwrap();
            }
        });
        let _over = Over(&over);
        let mut below = below.clone();
        let mut expected = BTreeMap::new();
        let mut unique = 0;
        for life in 1..400_u32 {
            let mut module = Publisher::attach::<Infallible>(shared.clone(), life).unwrap();
            for (object, byte) in &expected {
                let mut out = [0; PAGE];
                assert!(module.attributes(&mut below, *object).unwrap().is_some(), "life {life}");
                module.read(&mut below, *object, 0, &mut out).unwrap();
                assert_eq!(out[0], *byte, "life {life}, {object}");
            }
            for number in 0..150 {
                let object = ObjectId((u64::from(life) * 7 + number * 5) % OBJECTS);
                let byte = (life + number as u32) as u8;
                let is_new = expected.insert(object, byte).is_none();
                unique += 2;
                loop {
                    let mut draft = module.draft();
                    if is_new {
                        module.create(&mut draft, object, Class::Data, b"");
                    }
                    let written =
                        module.write::<Infallible>(&mut draft, object, 0, &[[byte; PAGE]]);
                    let done = match written {
                        Ok(()) => module.commit::<Infallible>(draft, unique, &[byte]).map(|_| ()),
                        Err(why) => {
                            module.drop_draft(draft);
                            Err(why)
                        }
                    };
                    match done {
                        Ok(()) => break,
                        // The next checkpoint makes room.
                        Err(Error::Full) => std::thread::yield_now(),
                        Err(why) => panic!("{why}"),
                    }
                }
            }
            // It dies here, and its last answer is asked for.
            let byte = (life + 149) as u8;
            assert_eq!(Answers::default().to(&shared, unique), Some(&[byte][..]), "life {life}");
        }
    });
}
