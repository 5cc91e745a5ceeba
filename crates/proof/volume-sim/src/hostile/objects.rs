//! Objects in memory: what is below a namespace or a cache, without stores.

use belay_object::{Attributes, Class, Credit, Lower, ObjectId, Operation, PAGE, Room};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// An object.
#[derive(Clone, Debug)]
pub struct Object {
    /// What is known of it.
    pub known: Attributes,
    /// Its pages; those that are not there are zeros.
    pub pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Objects {
    /// By their numbers.
    pub all: BTreeMap<ObjectId, Object>,
    /// What was appended to the intent log.
    pub intents: Vec<Vec<u8>>,
    epoch: u64,
    upto: u64,
}

impl Default for Objects {
    fn default() -> Self {
        Self { all: BTreeMap::new(), intents: Vec::new(), epoch: 1, upto: 0 }
    }
}

impl Lower for Objects {
    type Error = Infallible;

    fn epoch(&mut self) -> Result<u64, Infallible> {
        Ok(self.epoch)
    }

    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Infallible> {
        Ok(self.all.get(&object).map(|one| one.known.clone()))
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Infallible> {
        out.fill(0);
        if let Some(one) = self.all.get(&object) {
            for (number, out) in (0..).zip(out.chunks_exact_mut(PAGE)) {
                let found = one.pages.get(&page.saturating_add(number));
                found.into_iter().for_each(|found| out.copy_from_slice(found.as_slice()));
            }
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Infallible> {
        let object = operation.object();
        if let Operation::Create { class, attributes, .. } = *operation {
            let known = Attributes { size: 0, class, attributes: attributes.to_vec() };
            self.all.insert(object, Object { known, pages: BTreeMap::new() });
            return Ok(());
        }
        let Some(one) = self.all.get_mut(&object) else { return Ok(()) };
        match *operation {
            Operation::Delete { .. } => drop(self.all.remove(&object)),
            Operation::Write { page, data, .. } => {
                let (pages, _) = data.as_chunks::<PAGE>();
                for (number, content) in (0..).zip(pages) {
                    one.pages.insert(page.saturating_add(number), Box::new(*content));
                }
            }
            Operation::SetSize { size, .. } => {
                one.known.size = size;
                one.pages.retain(|page, _| *page < size.div_ceil(PAGE as u64));
            }
            Operation::SetAttributes { attributes, .. } => {
                one.known.attributes = attributes.to_vec();
            }
            Operation::Punch { page, count, .. } => {
                one.pages.retain(|number, _| *number < page || *number - page >= count);
            }
            Operation::Create { .. } | Operation::Pages { .. } | Operation::Keep { .. } => {}
        }
        Ok(())
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64, Infallible> {
        self.upto = upto;
        self.epoch += 1;
        Ok(self.epoch - 1)
    }

    fn upto(&mut self) -> Result<u64, Infallible> {
        Ok(self.upto)
    }

    fn room(&mut self) -> Result<Room, Infallible> {
        const MANY: u64 = 1 << 20;
        let credit = Credit { blocks: MANY, pairs: MANY / 2 };
        Ok(Room { capacity: MANY, free: MANY, least: MANY, stores: 1, credit })
    }

    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Infallible> {
        self.intents.push(bytes.to_vec());
        Ok(true)
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Infallible> {
        Ok(self.intents.clone())
    }
}

/// Whether it is metadata.
pub fn is_metadata(object: &Object) -> bool {
    object.known.class == Class::Metadata
}
