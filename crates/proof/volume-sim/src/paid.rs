//! What transactions have to pay for room, compared with what the stores take when it reaches them.
//! Objects are as sparse as they can be, and there is room for all of it.

use crate::Random;
use crate::asked::Asked;
use crate::disk::SimDisk;
use crate::memory::SimMemory;
use belay_cache::{Capacity, Cleaner, Error, Known, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::{Class, ObjectId, Operation, PAGE};
use belay_store::{DataMode, Parameters};
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};

/// An object, as far as it matters here.
#[derive(Clone, Debug)]
struct Object {
    class: Class,
    size: u64,
    pages: BTreeSet<u64>,
}

impl Object {
    fn known(&self) -> Known {
        let pages = self.size.div_ceil(PAGE as u64);
        let is_whole = self.pages.len() as u64 == pages;
        Known { class: self.class, size: self.size, is_whole }
    }

    fn cut(&mut self, size: u64) {
        self.size = size;
        self.pages.retain(|page| page * (PAGE as u64) < size);
    }
}

/// So few files take one level more of their tree in all.
const SLACK: u64 = 1;

type Failure = Error<belay_logical::Error>;

/// Does so many random things; gives how many blocks were taken, and how many were paid for.
///
/// # Errors
/// If more was taken than paid for, or something else is wrong.
pub fn run(seed: u64, count: usize) -> Result<(u64, u64), String> {
    let mut random = Random::seed_from_u64(seed);
    let disk = SimDisk::new(60_000);
    let twin_offset = [4, 8, 16, 32][random.random_range(0..4)];
    let data = [DataMode::OutOfPlace, DataMode::InPlace][random.random_range(0..2)];
    let parameters = Parameters { twin_offset, data, ..Parameters::default().small() };
    let made = Logical::format([9; 16], vec![([1; 16], &disk)], parameters);
    let mut lower = made.map_err(|why| why.to_string())?;
    let layout = Layout::new(Capacity { frames: 600, slots: 100 });
    let memory = SimMemory::new(layout.words);
    let room = lower.room().map_err(|why| why.to_string())?;
    let shared = || Shared::new(memory.another(), layout);
    shared().initialize(lower.epoch() - 1, 0, &room);
    let module = Publisher::attach(shared(), 1);
    let mut module = module.map_err(|why: Failure| why.to_string())?;
    let cleaner = Cleaner::new(shared());
    let mut objects = BTreeMap::new();
    let (mut taken, mut paid) = (0, 0);
    // In some runs nearly each transaction is compared alone.
    let seldom = [3, 6, 20][random.random_range(0..3)];
    for _ in 0..count {
        let mut is_full = false;
        match random.random_range(0..seldom) {
            0 => {
                // Sealed, and nothing is brought yet: others go on publishing.
                let dead = memory.another();
                dead.dies_after(Some(0));
                let _ = cleaner.checkpoint(&mut Asked::new(&mut lower, dead, None));
            }
            1 => is_full = true,
            _ => is_full = !transact(&mut module, &mut objects, &mut random)?,
        }
        if is_full {
            let mut asked = Asked::new(&mut lower, memory.another(), Some((shared(), SLACK)));
            let done = cleaner.checkpoint(&mut asked);
            let (took, had) = asked.seen()?;
            done.map_err(|why| why.to_string())?;
            (taken, paid) = (taken + took, paid + had);
        }
    }
    for store in lower.stores() {
        let report = store.check().map_err(|why| why.to_string())?;
        if !report.findings.is_empty() {
            return Err(format!("the check finds: {:?}", report.findings));
        }
    }
    Ok((taken, paid))
}

/// Publishes a random transaction; false if there is no room.
fn transact(
    module: &mut Publisher<SimMemory>,
    objects: &mut BTreeMap<ObjectId, Object>,
    random: &mut Random,
) -> Result<bool, String> {
    let mut effect = objects.clone();
    let mut draft = module.draft();
    let mut object = ObjectId(300);
    for _ in 0..random.random_range(1..4) {
        object = match random.random_range(0..12) {
            0 => ObjectId(random.random_range(0..6) << random.random_range(0..30)),
            8.. => object,
            which => effect.keys().nth(which).copied().unwrap_or(ObjectId(300)),
        };
        if let Some(known) = objects.get(&object).filter(|_| random.random_range(0..6) > 0) {
            draft.tell(object, known.known());
        }
        let Some(known) = effect.get_mut(&object) else {
            let class = if random.random() { Class::Data } else { Class::Metadata };
            module.create(&mut draft, object, class, b"");
            effect.insert(object, Object { class, size: 0, pages: BTreeSet::new() });
            continue;
        };
        // Behind one another, near, or anywhere.
        let page = match random.random_range(0..4) {
            0 => known.size / PAGE as u64,
            1 => known.pages.last().map_or(0, |page| page + random.random_range(0..3)),
            _ => {
                let bits = random.random_range(1..26);
                random.random_range(0..1 << bits)
            }
        };
        match random.random_range(0..20) {
            0..13 => {
                let count = random.random_range(1..5);
                let content = vec![[1; PAGE]; count as usize];
                match module.write::<belay_logical::Error>(&mut draft, object, page, &content) {
                    Ok(()) => {}
                    Err(Error::Full) => {
                        module.drop_draft(draft);
                        return Ok(false);
                    }
                    Err(why) => return Err(why.to_string()),
                }
                known.pages.extend(page..page + count);
                let end = (page + count) * PAGE as u64;
                if known.size < end {
                    known.size = end;
                    module.add(&mut draft, &Operation::SetSize { object, size: end });
                }
            }
            13..16 => {
                let most = known.size + random.random_range(0..3) * PAGE as u64;
                let size = random.random_range(0..=most);
                module.add(&mut draft, &Operation::SetSize { object, size });
                known.cut(size);
            }
            16..18 => {
                let count = random.random_range(1..300);
                module.add(&mut draft, &Operation::Punch { object, page, count });
                known.pages.retain(|other| !(page..page + count).contains(other));
            }
            _ => {
                module.add(&mut draft, &Operation::Delete { object });
                effect.remove(&object);
                break;
            }
        }
    }
    match module.commit::<belay_logical::Error>(draft, 0, b"") {
        Ok(_) => {
            *objects = effect;
            Ok(true)
        }
        Err(Error::Full) => Ok(false),
        Err(why) => Err(why.to_string()),
    }
}
