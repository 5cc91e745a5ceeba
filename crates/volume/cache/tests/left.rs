//! What all processes leave in the memory when they die is read by the next mount, wherever the
//! cache was.

mod below;
mod words;

use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_memory::Memory;
use belay_object::{ObjectId, Operation};
use below::{Below, ample};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use words::Words;

/// A process that dies behind so many stores.
struct Dying(Arc<Words>, AtomicU64);

impl Dying {
    fn store_one(&self) -> &Words {
        match self.1.load(SeqCst).checked_sub(1) {
            Some(left) => self.1.store(left, SeqCst),
            None => resume_unwind(Box::new("it dies")),
        }
        &self.0
    }
}

impl Memory for Dying {
    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }
    fn store(&self, at: usize, value: u64) {
        self.store_one().store(at, value);
    }
    fn compare_exchange(&self, at: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.store_one().compare_exchange(at, old, new)
    }
    fn add(&self, at: usize, by: u64) -> u64 {
        self.store_one().add(at, by)
    }
}

fn publish(module: &mut Publisher<Arc<Words>>) -> Result<u64, Error<Infallible>> {
    let mut draft = module.draft();
    module.add(&mut draft, &Operation::Keep { object: ObjectId(3) });
    module.commit(draft, 1, b"")
}

#[test]
fn a_log_that_is_full_is_read_wherever_the_cache_died() {
    let layout = Layout::new(Capacity { frames: 16, slots: 8 });
    for left in 0.. {
        let words = Arc::new(Words::new(layout.words));
        let shared = Shared::new(Arc::clone(&words), layout);
        shared.initialize(0, 0, &ample());
        shared.set_valid();
        let mut below = Below::default();
        let mut module = Publisher::attach::<Infallible>(shared.clone(), 1).unwrap();
        let mut published = 0;
        let mut publish_all = |module: &mut _| {
            while publish(module).is_ok() {
                published += 1;
            }
        };
        publish_all(&mut module);
        let dying = Arc::new(Dying(Arc::clone(&words), AtomicU64::new(left)));
        let cleaner = Cleaner::new(Shared::new(dying, layout));
        let died = catch_unwind(AssertUnwindSafe(|| cleaner.checkpoint(&mut below))).is_err();
        // It has taken what room there is, and dies as well.
        publish_all(&mut module);
        assert_eq!(
            shared.read_all::<Infallible>().unwrap(),
            published - shared.durable(),
            "{left}"
        );
        Cleaner::new(shared.clone()).checkpoint(&mut below).unwrap();
        assert_eq!(shared.durable(), published, "{left}");
        if !died {
            assert!(left > 20, "all of its steps were tried");
            return;
        }
    }
}
