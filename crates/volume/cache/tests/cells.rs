//! Records that are longer than most: cells run out before slots and frames.

mod below;
mod words;

use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_object::{ObjectId, Operation};
use below::{Below, ample};
use std::convert::Infallible;
use std::sync::Arc;
use words::Words;

type Module = Publisher<Arc<Words>>;

/// Publishes a transaction of so many operations.
fn publish(module: &mut Module, operations: u64) -> Result<u64, Error<Infallible>> {
    let mut draft = module.draft();
    for number in 0..operations {
        module.add(&mut draft, &Operation::Keep { object: ObjectId(number) });
    }
    module.commit(draft, 1, b"")
}

#[test]
fn a_checkpoint_makes_room_for_records() {
    let layout = Layout::new(Capacity { frames: 10, slots: 1000 });
    let shared = Shared::new(Arc::new(Words::new(layout.words)), layout);
    shared.initialize(0, 0, &ample());
    let (cleaner, mut below) = (Cleaner::new(shared.clone()), Below::default());
    let mut module = Module::attach::<Infallible>(shared.clone(), 1).unwrap();
    let mut lives = 1;
    for round in 0..5 {
        let mut published = 0;
        loop {
            match publish(&mut module, 200) {
                Ok(_) => published += 1,
                Err(Error::Full) => break,
                Err(why) => panic!("{why}"),
            }
            // What a life of the module leaves to the next one is neither lost nor used twice.
            if published % 20 == 7 {
                lives += 1;
                module = Module::attach::<Infallible>(shared.clone(), lives).unwrap();
            }
        }
        assert!((50..1000).contains(&published), "round {round}: {published}");
        assert!(shared.has_much());
        cleaner.checkpoint(&mut below).unwrap();
        assert_eq!(shared.cells().free(), shared.cells().count(), "round {round}");
    }
    // One that no checkpoint makes room for is refused for good, and takes nothing.
    assert!(matches!(publish(&mut module, 40_000), Err(Error::NoSpace)));
    assert_eq!(shared.cells().free(), shared.cells().count());
}
