//! Stores that are brought checkpoints, and a flag that ends threads.

use belay_object::{Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Room};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

/// Pages by their numbers.
pub type Pages = BTreeMap<u64, Box<[u8; PAGE]>>;

/// An object: its class, its length, and its pages.
pub type Object = (Class, u64, Pages);

/// What the stores have.
#[derive(Default)]
struct Kept {
    epoch: u64,
    upto: u64,
    objects: BTreeMap<ObjectId, Object>,
    intents: Vec<Vec<u8>>,
}

/// The stores.
#[derive(Clone, Default)]
pub struct Below(Arc<Mutex<Kept>>);

impl Below {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap()
    }

    /// An object that there is.
    #[allow(dead_code, reason = "one of the tests that share this looks")]
    pub fn object(&self, object: ObjectId) -> Object {
        self.kept().objects[&object].clone()
    }
}

/// More room than any test takes.
pub fn ample() -> Room {
    let credit = Credit { blocks: 1 << 30, pairs: 1 << 29 };
    Room { capacity: 1 << 30, free: 1 << 30, least: 1 << 30, stores: 1, credit }
}

impl Lower for Below {
    type Error = Infallible;

    fn epoch(&mut self) -> Result<u64, Infallible> {
        Ok(self.kept().epoch + 1)
    }
    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Infallible> {
        let found = self.kept().objects.get(&object).map(|(class, size, _)| (*class, *size));
        Ok(found.map(|(class, size)| Attributes { size, class, attributes: Vec::new() }))
    }
    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Infallible> {
        let kept = self.kept();
        for (number, out) in (page..).zip(out.chunks_mut(PAGE)) {
            let found = kept.objects.get(&object).and_then(|(_, _, pages)| pages.get(&number));
            out.copy_from_slice(found.map_or(&[0; PAGE], |content| &**content));
        }
        Ok(())
    }
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Infallible> {
        let mut kept = self.kept();
        match *operation {
            Operation::Create { object, class, .. } => {
                kept.objects.insert(object, (class, 0, Pages::new()));
            }
            Operation::Write { object, page, data } => {
                let (contents, _) = data.as_chunks::<PAGE>();
                let pages = &mut kept.objects.get_mut(&object).unwrap().2;
                pages.extend((page..).zip(contents.iter().map(|content| Box::new(*content))));
            }
            Operation::SetSize { object, size } => {
                let (_, is, pages) = kept.objects.get_mut(&object).unwrap();
                *is = size;
                pages.retain(|page, _| page * (PAGE as u64) < size);
            }
            Operation::Delete { object } => {
                kept.objects.remove(&object);
            }
            _ => {}
        }
        Ok(())
    }
    fn checkpoint(&mut self, upto: u64) -> Result<u64, Infallible> {
        let mut kept = self.kept();
        (kept.epoch, kept.upto) = (kept.epoch + 1, upto);
        Ok(kept.epoch)
    }
    fn upto(&mut self) -> Result<u64, Infallible> {
        Ok(self.kept().upto)
    }
    fn room(&mut self) -> Result<Room, Infallible> {
        Ok(ample())
    }
    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Infallible> {
        self.kept().intents.push(bytes.to_vec());
        Ok(true)
    }
    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Infallible> {
        Ok(self.kept().intents.clone())
    }
}

/// Ends the others, also when something fails.
#[allow(dead_code, reason = "not all tests that share this have others")]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
