//! Publishers that publish at the same time take no more room together than there is.

mod words;

use belay_cache::index::Index;
use belay_cache::{Capacity, Error, Layout, Publisher, Shared};
use belay_object::credit::creation;
use belay_object::{Class, Credit, ObjectId, Room};
use std::convert::Infallible;
use std::sync::Arc;
use words::Words;

#[test]
fn together_they_take_no_more_than_there_is() {
    const THREADS: u64 = 4;
    let layout = Layout::new(Capacity { frames: 600, slots: 500 });
    for round in 0..50 {
        let shared = Shared::new(Arc::new(Words::new(layout.words)), layout);
        let credit = Credit { blocks: 500 + round, pairs: 400 };
        let room = Room { credit, ..Room::default() };
        shared.initialize(1, 0, &room);
        let publishers: Vec<_> = (1..=THREADS)
            .map(|generation| Publisher::attach::<Infallible>(shared.clone(), generation as u32))
            .collect();
        std::thread::scope(|scope| {
            for (thread, publisher) in (0..).zip(publishers) {
                let mut publisher = publisher.unwrap();
                scope.spawn(move || {
                    for number in 0.. {
                        let object = ObjectId(number * THREADS + thread);
                        let mut draft = publisher.draft();
                        publisher.create(&mut draft, object, Class::Data, b"");
                        match publisher.commit::<Infallible>(draft, 0, b"") {
                            Ok(_) => {}
                            Err(Error::Full) => break,
                            Err(why) => panic!("{why}"),
                        }
                    }
                });
            }
        });
        let mut index = Index::of(&shared);
        index.catch_up(&shared, u64::MAX).unwrap();
        let left = credit.blocks - room.reserve() - index.owed().blocks;
        // Objects that come later take more.
        assert!(left < creation(ObjectId(1000)).blocks, "{left} are left");
        assert!(index.owed().pairs > 100);
    }
}
