//! What a sync appends to the intent log.

mod below;
mod words;

use belay_cache::appended::parts;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_object::{Class, Lower, ObjectId, Operation, PAGE, Transaction};
use below::{Below, ample};
use std::convert::Infallible;
use std::sync::Arc;
use words::Words;

type Module = Publisher<Arc<Words>>;

const FILE: ObjectId = ObjectId(7);

fn write(module: &mut Module, page: u64, content: &[[u8; PAGE]]) {
    let mut draft = module.draft();
    if module.attributes(&mut Below::default(), FILE).unwrap().is_none() {
        module.create(&mut draft, FILE, Class::Data, b"");
    }
    module.write::<Infallible>(&mut draft, FILE, page, content).unwrap();
    module.add(&mut draft, &Operation::SetSize { object: FILE, size: 1000 * PAGE as u64 });
    module.commit::<Infallible>(draft, 1, b"").unwrap();
}

/// How many pages the last sync has appended.
fn appended(below: &mut Below) -> usize {
    let last = below.intents().unwrap().pop().unwrap();
    let pages = |bytes: &[u8]| {
        let transaction = Transaction::decode(bytes.to_vec()).unwrap();
        let writes = transaction.operations().map(|one| match one.unwrap() {
            Operation::Write { data, .. } => data.len() / PAGE,
            _ => 0,
        });
        writes.sum::<usize>()
    };
    parts(&last).map(|part| pages(part.unwrap().bytes)).sum()
}

/// What is in the log already is not appended again, unless somebody does it who does not know
/// that.
#[test]
fn a_sync_appends_what_is_new() {
    let layout = Layout::new(Capacity { frames: 4000, slots: 1000 });
    let shared = Shared::new(Arc::new(Words::new(layout.words)), layout);
    shared.initialize(0, 0, &ample());
    let mut below = Below::default();
    let mut module = Module::attach::<Infallible>(shared.clone(), 1).unwrap();
    let cleaner = Cleaner::new(shared.clone());
    let mut pages = |cleaner: &Cleaner<_>| {
        assert!(cleaner.sync(&mut below, &[FILE]).unwrap());
        appended(&mut below)
    };
    write(&mut module, 0, &[[1; PAGE]; 200]);
    assert_eq!(pages(&cleaner), 200);
    for number in 0..20 {
        write(&mut module, number * 3, &[[2; PAGE]; 2]);
        assert_eq!(pages(&cleaner), 2, "sync {number}");
    }
    // The next life of the process that appends.
    let cleaner = Cleaner::new(shared);
    write(&mut module, 300, &[[3; PAGE]]);
    assert_eq!(pages(&cleaner), 201);
    // The log of a new epoch is another one, and what it has not is in the checkpoint.
    let mut below = below.clone();
    cleaner.checkpoint(&mut below).unwrap();
    write(&mut module, 1, &[[4; PAGE]]);
    assert!(cleaner.sync(&mut below, &[FILE]).unwrap());
    assert_eq!(appended(&mut below), 1);
}
