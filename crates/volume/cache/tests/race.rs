//! Publishers that publish at the same time take no more room together than there is.

use belay_cache::index::Index;
use belay_cache::{Capacity, Error, Layout, Publisher, Shared};
use belay_memory::Memory;
use belay_object::credit::creation;
use belay_object::{Class, Credit, ObjectId, Room};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

struct Words(Vec<AtomicU64>);

impl Memory for Words {
    fn load(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(SeqCst))
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value, SeqCst);
        }
    }

    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.0.get(at).map_or(Err(!old), |word| word.compare_exchange(old, new, SeqCst, SeqCst))
    }

    fn add(&self, at: usize, by: u64) -> u64 {
        self.0.get(at).map_or(0, |word| word.fetch_add(by, SeqCst))
    }
}

#[test]
fn together_they_take_no_more_than_there_is() {
    const THREADS: u64 = 4;
    let layout = Layout::new(Capacity { frames: 600, slots: 500 });
    for round in 0..50 {
        let words = (0..layout.words).map(|_| AtomicU64::new(0)).collect();
        let shared = Shared::new(Arc::new(Words(words)), layout);
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
