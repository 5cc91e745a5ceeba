//! What a power failure leaves, and whether that is right.

use super::{Known, Lives, Lower, Model, OBJECTS, PAGES, Stack, open};
use crate::disk::SimDisk;
use belay_cache::Shared;
use belay_cache::intent::replay;
use belay_object::{ObjectId, PAGE};
use rand::Rng;
use std::collections::BTreeMap;

impl Stack {
    pub(super) fn lose_power<'d>(&mut self, disks: &'d [SimDisk]) -> Result<Lives<'d>, String> {
        self.outcome.power_failures += 1;
        for disk in disks {
            disk.power_failure(&mut self.random);
        }
        self.power.end_at(None);
        self.memory.clear();
        let mut lower = open(disks)?;
        let epoch = lower.epoch() - 1;
        let model = self.checkpoints.get(&epoch).cloned();
        let model = model.ok_or_else(|| format!("checkpoint {epoch} was never taken"))?;
        // A second power failure may cut that off.
        let end = self.power.steps() + self.random.random_range(0..400);
        self.power.end_at(self.random.random::<bool>().then_some(end));
        let mut replayed = replay(&mut lower);
        if replayed.is_err() && self.power.is_off() {
            for disk in disks {
                disk.power_failure(&mut self.random);
            }
            self.power.end_at(None);
            lower = open(disks)?;
            replayed = replay(&mut lower);
        }
        self.power.end_at(None);
        let next = replayed.map_err(|why| why.to_string())?;
        self.mend(&mut lower, next, &model)?;
        let room = lower.room().map_err(|why| why.to_string())?;
        let shared = Shared::new(self.memory.another(), self.layout);
        shared.initialize(lower.epoch() - 1, next, &room);
        self.now = self.recovered(&mut lower, model)?;
        self.checkpoints = BTreeMap::from([(lower.epoch() - 1, self.now.clone())]);
        self.promised.clear();
        self.names.clear();
        self.overwritten.clear();
        let module = self.begin_module(None)?;
        let mut lives = Lives { module, cache: self.begin_cache(), lower };
        self.compare(&mut lives)?;
        Ok(lives)
    }

    /// What is there after a power failure, which must be right: the names of some moment since the
    /// last promise, and what was promised.
    pub(super) fn recovered(
        &mut self,
        lower: &mut Lower<'_>,
        checkpoint: Model,
    ) -> Result<Model, String> {
        let say = |why: belay_logical::Error| why.to_string();
        let mut found = Model::new();
        for object in (0..OBJECTS).map(ObjectId) {
            let Some(attributes) = belay_object::Lower::attributes(lower, object).map_err(say)?
            else {
                continue;
            };
            let mut known = Known {
                size: attributes.size,
                attributes: attributes.attributes,
                pages: BTreeMap::new(),
            };
            for page in 0..PAGES + 4 {
                let mut content = [0; PAGE];
                lower.read(object, page, &mut content).map_err(say)?;
                if content != [content[0]; PAGE] {
                    return Err(format!("page {page} of {object} is mixed"));
                }
                if content[0] != 0 {
                    known.pages.insert(page, content[0]);
                }
            }
            found.insert(object, known);
        }
        let seen = names_of(&found);
        let fits = |model: &Model| names_of(model) == seen;
        if self.names.is_empty() {
            // Nothing was promised: it is the checkpoint.
            let wanted = without_zeros(&checkpoint);
            let is_it = if self.in_place { self.may_be(&found, &wanted)? } else { found == wanted };
            return match is_it {
                true => Ok(found),
                false => Err("it is not as the checkpoint".to_owned()),
            };
        }
        if !self.names.iter().any(fits) {
            return Err(format!(
                "the names are those of no moment since the last promise: {seen:?}"
            ));
        }
        for (object, promised) in &self.promised {
            self.outcome.promises_kept += 1;
            let is = found.get(object);
            let promised = without_zero_pages(promised);
            if is != Some(&promised) {
                return Err(format!("{object} is {is:?}, not {promised:?}"));
            }
        }
        Ok(found)
    }
}

/// What is told of objects but their data.
pub(super) fn names_of(model: &Model) -> Vec<(ObjectId, u64, Vec<u8>)> {
    let one =
        |(object, known): (&ObjectId, &Known)| (*object, known.size, known.attributes.clone());
    model.iter().map(one).collect()
}

fn without_zero_pages(known: &Known) -> Known {
    let pages = known.pages.iter().filter(|(_, byte)| **byte != 0);
    Known { pages: pages.map(|(page, byte)| (*page, *byte)).collect(), ..known.clone() }
}

fn without_zeros(model: &Model) -> Model {
    model.iter().map(|(object, known)| (*object, without_zero_pages(known))).collect()
}
