//! What is written between two checkpoints reaches the stores once, and what is gone again does
//! not.

mod below;
mod words;

use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_object::{Attributes, Class, Lower, ObjectId, Operation, PAGE, Room};
use below::{Below, ample};
use std::convert::Infallible;
use std::sync::Arc;
use words::Words;

/// Stores that note which pages are brought to them, and of which objects something is.
#[derive(Default)]
struct Noted {
    below: Below,
    pages: Vec<(ObjectId, u64, u8)>,
    touched: Vec<ObjectId>,
}

impl Lower for Noted {
    type Error = Infallible;

    fn epoch(&mut self) -> Result<u64, Infallible> {
        self.below.epoch()
    }
    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Infallible> {
        self.below.attributes(object)
    }
    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Infallible> {
        self.below.read(object, page, out)
    }
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Infallible> {
        self.touched.push(operation.object());
        if let Operation::Write { object, page, data } = *operation {
            let written = (page..).zip(data.chunks(PAGE));
            self.pages.extend(written.map(|(page, content)| (object, page, content[0])));
        }
        self.below.apply(operation)
    }
    fn checkpoint(&mut self, upto: u64) -> Result<u64, Infallible> {
        self.below.checkpoint(upto)
    }
    fn upto(&mut self) -> Result<u64, Infallible> {
        self.below.upto()
    }
    fn room(&mut self) -> Result<Room, Infallible> {
        self.below.room()
    }
    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Infallible> {
        self.below.append_intent(bytes)
    }
    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Infallible> {
        self.below.intents()
    }
}

#[test]
fn writes_are_merged_and_what_is_gone_is_not_written() {
    const KEPT: ObjectId = ObjectId(7);
    const GONE: ObjectId = ObjectId(8);
    let layout = Layout::new(Capacity { frames: 400, slots: 100 });
    let shared = Shared::new(Arc::new(Words::new(layout.words)), layout);
    shared.initialize(0, 0, &ample());
    let mut module = Publisher::attach::<Infallible>(shared.clone(), 1).unwrap();
    let mut below = Noted::default();
    let cleaner = Cleaner::new(shared);
    let mut write = |object, is_new: bool, (page, count): (u64, usize), byte, size| {
        let mut draft = module.draft();
        if is_new {
            module.create(&mut draft, object, Class::Data, b"");
        }
        let pages = vec![[byte; PAGE]; count];
        module.write::<Infallible>(&mut draft, object, page, &pages).unwrap();
        module.add(&mut draft, &Operation::SetSize { object, size });
        module.commit::<Infallible>(draft, 0, b"").unwrap();
    };
    let size = |pages: u64| pages * PAGE as u64;
    write(KEPT, true, (0, 10), 1, size(10));
    for byte in 2..20 {
        write(KEPT, false, (3, 1), byte, size(10));
    }
    write(GONE, true, (0, 20), 30, size(20));
    // What is behind the fifth page is cut off, and the file is longer again later.
    write(KEPT, false, (4, 1), 40, size(5));
    write(KEPT, false, (9, 1), 41, size(10));
    let mut draft = module.draft();
    module.add(&mut draft, &Operation::Delete { object: GONE });
    module.commit::<Infallible>(draft, 0, b"").unwrap();
    cleaner.checkpoint(&mut below).unwrap();
    let wanted = [(0, 1), (1, 1), (2, 1), (3, 19), (4, 40), (9, 41)];
    assert_eq!(below.pages, wanted.map(|(page, byte)| (KEPT, page, byte)));
    assert!(!below.touched.contains(&GONE), "nothing of it was ever to be seen");
}
