//! Processes at the same time, as threads on one memory: publishers, a reader, a cache that takes
//! checkpoints and syncs, and stores that it is the only one to change. Each page is filled with a
//! tag that tells object, page and version.

mod below;
mod words;

use belay_cache::{Capacity, Cleaner, Error, Layout, Publisher, Shared};
use belay_object::{Class, ObjectId, Operation, PAGE};
use below::{Below, Over, ample};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use words::Words;

/// Objects of each publisher.
const OBJECTS: u64 = 6;
const PAGES: u64 = 4;
/// The class of objects alternates.
fn class_of(object: ObjectId) -> Class {
    if object.0.is_multiple_of(2) { Class::Data } else { Class::Metadata }
}

fn tag(object: ObjectId, page: u64, version: u64) -> [u8; PAGE] {
    let mut content = [0; PAGE];
    let (words, _) = content.as_chunks_mut::<8>();
    for word in words {
        *word = (object.0 << 48 | page << 40 | version).to_le_bytes();
    }
    content
}

/// The version of a page; `None` for zeros. Anything else is mixed, or another page.
fn version_of(object: ObjectId, page: u64, content: &[u8; PAGE]) -> Option<u64> {
    let first = content.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    if first == 0 {
        assert!(content.iter().all(|byte| *byte == 0), "page {page} of {object} is mixed");
        return None;
    }
    let version = first & 0xff_ffff_ffff;
    assert!(*content == tag(object, page, version), "page {page} of {object} is mixed: {first:x}");
    Some(version)
}

type Module = Publisher<Arc<Words>>;

/// Publishes something, after as many checkpoints as it takes.
fn publish(module: &mut Module, unique: u64, fill: impl Fn(&mut Module) -> Filled) {
    loop {
        let done = match fill(module) {
            Ok(draft) => module.commit::<Infallible>(draft, unique, b"").map(|_| ()),
            Err(why) => Err(why),
        };
        match done {
            Ok(()) => return,
            Err(Error::Full) => std::thread::yield_now(),
            Err(why) => panic!("{why}"),
        }
    }
}

type Filled = Result<belay_cache::publisher::Draft, Error<Infallible>>;

fn whole_size() -> u64 {
    PAGES * PAGE as u64
}

fn make(module: &mut Module, object: ObjectId) -> Filled {
    let mut draft = module.draft();
    module.create(&mut draft, object, class_of(object), b"");
    module.add(&mut draft, &Operation::SetSize { object, size: whole_size() });
    Ok(draft)
}

/// All pages of an object with that version, in one transaction.
fn write(module: &mut Module, object: ObjectId, version: u64) -> Filled {
    let contents: Vec<_> = (0..PAGES).map(|page| tag(object, page, version)).collect();
    let mut draft = module.draft();
    match module.write::<Infallible>(&mut draft, object, 0, &contents) {
        Ok(()) => Ok(draft),
        Err(why) => {
            module.drop_draft(draft);
            Err(why)
        }
    }
}

#[test]
fn pages_are_never_mixed_whoever_works_at_the_same_time() {
    const PUBLISHERS: u64 = 3;
    const VERSIONS: u64 = 400;
    let layout = Layout::new(Capacity { frames: 300, slots: 60 });
    let shared = Shared::new(Arc::new(Words::new(layout.words)), layout);
    shared.initialize(0, 0, &ample());
    let (below, over) = (Below::default(), AtomicBool::new(false));
    // What each object has at least: nobody reads an older version later.
    let published: Vec<AtomicU64> = (0..PUBLISHERS * OBJECTS).map(|_| AtomicU64::new(0)).collect();
    let objects =
        |publisher: u64| (0..OBJECTS).map(move |at| ObjectId(16 + publisher * OBJECTS + at));
    let (reads, checkpoints, syncs) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // A life that begins takes what others were making for that of the dead: so all begin before
    // anything is made.
    let attach = |generation: u64| {
        Publisher::attach::<Infallible>(shared.clone(), generation as u32).unwrap()
    };
    let readers = [(attach(100), 0), (attach(101), 1 << 20), (attach(102), 20 * PAGE)];
    let publishers: Vec<Module> = (0..PUBLISHERS).map(|number| attach(number + 1)).collect();
    std::thread::scope(|scope| {
        // The cache: checkpoints, and syncs between them.
        scope.spawn(|| {
            let cleaner = Cleaner::new(shared.clone());
            let mut below = below.clone();
            while !over.load(SeqCst) {
                for object in objects(0) {
                    cleaner.sync(&mut below, &[object]).unwrap();
                    syncs.fetch_add(1, SeqCst);
                }
                cleaner.checkpoint(&mut below).unwrap();
                checkpoints.fetch_add(1, SeqCst);
            }
        });
        // Readers: one keeps nothing, one all that it has read, and one has room for less than
        // that.
        for (module, kept) in readers {
            let (mut below, over, published, reads) = (below.clone(), &over, &published, &reads);
            scope.spawn(move || {
                let mut module = module.keeping(kept);
                let mut content = [0; PAGE];
                while !over.load(SeqCst) {
                    for object in (0..PUBLISHERS).flat_map(objects) {
                        let least = published[(object.0 - 16) as usize].load(SeqCst);
                        if module.attributes(&mut below, object).unwrap().is_none() {
                            assert_eq!(least, 0, "{object} is gone");
                            continue;
                        }
                        for page in 0..PAGES {
                            module.read(&mut below, object, page, &mut content).unwrap();
                            let version = version_of(object, page, &content).unwrap_or(0);
                            assert!(version >= least, "{object}: {version} after {least}");
                            reads.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
        let _over = Over(&over);
        let publishers: Vec<_> = (0..)
            .zip(publishers)
            .map(|(number, mut module)| {
                let (published, mut below) = (&published, below.clone());
                scope.spawn(move || {
                    for object in objects(number) {
                        publish(&mut module, 0, |module| make(module, object));
                    }
                    for version in 1..=VERSIONS {
                        for object in objects(number) {
                            publish(&mut module, 0, |module| write(module, object, version));
                            published[(object.0 - 16) as usize].store(version, SeqCst);
                            // It sees its own, whatever the others do.
                            let mut content = [0; PAGE];
                            let page = version % PAGES;
                            module.read(&mut below, object, page, &mut content).unwrap();
                            assert_eq!(version_of(object, page, &content), Some(version));
                        }
                    }
                })
            })
            .collect();
        for publisher in publishers {
            publisher.join().unwrap();
        }
    });
    let cleaner = Cleaner::new(shared.clone());
    cleaner.checkpoint(&mut below.clone()).unwrap();
    assert!(shared.is_empty());
    for object in (0..PUBLISHERS).flat_map(objects) {
        let (class, size, pages) = below.object(object);
        assert_eq!((class, size), (class_of(object), whole_size()));
        for (page, content) in pages {
            assert_eq!(version_of(object, page, &content), Some(VERSIONS));
        }
    }
    println!("{reads:?} reads, {checkpoints:?} checkpoints, {syncs:?} syncs");
}
