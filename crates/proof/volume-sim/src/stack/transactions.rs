//! Transactions, and what they come to.

use super::{Failure, Known, Lives, Model, OBJECTS, PAGES, Stack};
use crate::disk::SimDisk;
use belay_cache::Error;
use belay_cache::publisher::Draft;
use belay_object::{Class, ObjectId, Operation, PAGE};
use rand::Rng;

impl Stack {
    /// Makes a transaction of some operations, and publishes it; the module may die at any store.
    pub(super) fn transact<'d>(
        &mut self,
        disks: &'d [SimDisk],
        lives: &mut Lives<'d>,
    ) -> Result<(), String> {
        let dies = self.random.random_range(0..6) == 0;
        if dies {
            // Most stores are those of pages.
            let most = [40, 700, 4000][self.random.random_range(0..3)];
            lives.module.1.dies_after(Some(self.random.random_range(0..most)));
        }
        self.unique += 1;
        let unique = self.unique;
        let mut effect = self.now.clone();
        let mut draft = lives.module.0.draft();
        let count = self.random.random_range(1..5);
        let mut full = false;
        for _ in 0..count {
            match self.operation(lives, &mut draft, &mut effect) {
                Ok(true) => break,
                Ok(false) => {}
                Err(Error::Full) => {
                    full = true;
                    break;
                }
                Err(_) if lives.module.1.is_dead() => break,
                Err(why) => return Err(why.to_string()),
            }
        }
        if dies && !lives.module.1.is_dead() && self.random.random() {
            // In the middle of what counts.
            lives.module.1.dies_after(Some(self.random.random_range(0..60)));
        }
        let published = match full {
            true => {
                lives.module.0.drop_draft(draft);
                Err(Error::Full)
            }
            false => {
                lives.module.0.commit::<belay_logical::Error>(draft, unique, &reply_to(unique))
            }
        };
        if lives.module.1.is_dead() {
            self.outcome.module_deaths += 1;
            let before = self.outcome.published_by_the_dead;
            lives.module = self.begin_module(Some((unique, effect)))?;
            if self.outcome.published_by_the_dead > before && self.random.random_bool(0.3) {
                // Nor is the answer lost if a checkpoint takes it out of the log before anybody
                // asks.
                self.checkpoint(disks, lives)?;
                let now = self.now.clone();
                lives.module = self.begin_module(Some((unique, now)))?;
                if self.outcome.published_by_the_dead != before + 2 {
                    return Err(format!("request {unique} has lost its answer"));
                }
            }
            return Ok(());
        }
        lives.module.1.dies_after(None);
        match published {
            Ok(_) => {
                self.published(effect);
                self.outcome.transactions += 1;
                Ok(())
            }
            Err(Error::Full) => self.checkpoint(disks, lives),
            Err(Error::NoSpace) => self.refused(disks, lives),
            Err(why) => Err(why.to_string()),
        }
    }

    /// A transaction was published, with that effect.
    pub(super) fn published(&mut self, effect: Model) {
        self.promised.retain(|object, known| effect.get(object) == Some(known));
        if self.in_place {
            self.note_overwritten(&effect);
        }
        if !self.names.is_empty() {
            self.names.push(effect.clone());
        }
        self.now = effect;
    }

    /// Adds a random operation; true if nothing may come after it.
    pub(super) fn operation(
        &mut self,
        lives: &mut Lives<'_>,
        draft: &mut Draft,
        effect: &mut Model,
    ) -> Result<bool, Failure> {
        let random = &mut self.random;
        let module = &mut lives.module.0;
        let object = ObjectId(random.random_range(0..OBJECTS));
        let attributes = vec![random.random(); random.random_range(0..160)];
        let page = random.random_range(0..PAGES);
        let Some(known) = effect.get_mut(&object) else {
            let class = if random.random() { Class::Data } else { Class::Metadata };
            module.create(draft, object, class, &attributes);
            effect.insert(object, Known { attributes, ..Known::default() });
            return Ok(false);
        };
        match random.random_range(0..100) {
            0..60 => {
                let byte: u8 = random.random();
                let count = random.random_range(1..4);
                let content = vec![[byte; PAGE]; count];
                // Not all is told: what is not is taken for the worst.
                if random.random_range(0..4) > 0
                    && let Some(found) = module.attributes(&mut lives.lower, object)?
                {
                    let (class, size) = (found.class, found.size);
                    let known = belay_cache::Known { class, size, is_whole: false };
                    draft.tell(object, known);
                }
                module.write(draft, object, page, &content)?;
                known.pages.extend((page..page + count as u64).map(|page| (page, byte)));
                let end = (page + count as u64) * PAGE as u64;
                if known.size < end {
                    // Longer is not final, but it is an operation of that kind: it comes last.
                    module.add(draft, &Operation::SetSize { object, size: end });
                    known.size = end;
                    return Ok(true);
                }
                Ok(false)
            }
            60..75 => {
                let size = page * PAGE as u64;
                module.add(draft, &Operation::SetSize { object, size });
                known.size = size;
                known.pages.retain(|other, _| *other < page);
                Ok(true)
            }
            75..85 => {
                module.add(draft, &Operation::SetAttributes { object, attributes: &attributes });
                known.attributes = attributes;
                Ok(false)
            }
            85..92 => {
                module.add(draft, &Operation::Punch { object, page, count: 3 });
                known.pages.retain(|other, _| !(page..page + 3).contains(other));
                Ok(true)
            }
            _ => {
                module.add(draft, &Operation::Delete { object });
                effect.remove(&object);
                Ok(true)
            }
        }
    }
}

/// What a request is answered with.
pub(super) fn reply_to(unique: u64) -> Vec<u8> {
    let length = (unique * 37 % 90) as usize;
    vec![unique as u8; length]
}
