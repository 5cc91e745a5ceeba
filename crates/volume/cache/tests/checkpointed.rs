//! A life of a publisher begins while checkpoints are taken: it sees all that was published, and
//! finds all answers.

mod below;
mod words;

use belay_cache::answers::Answers;
use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_object::{Class, ObjectId, Operation, PAGE};
use below::{Below, Over, ample};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use words::Words;

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
                    module.add(&mut draft, &Operation::SetSize { object, size: PAGE as u64 });
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
