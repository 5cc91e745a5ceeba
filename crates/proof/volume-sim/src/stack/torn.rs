//! What may be there of data that are written in place, after a power failure.

use super::left::names_of;
use super::{Known, Lower, Model, OBJECTS, PAGES, Stack};
use belay_object::{Lower as _, ObjectId, Operation, PAGE};
use std::collections::{BTreeMap, BTreeSet};

/// What each page was written with.
pub(super) type Overwritten = BTreeMap<(ObjectId, u64), BTreeSet<u8>>;

impl Stack {
    /// A transaction with that effect is published: which pages it changes.
    pub(super) fn note_overwritten(&mut self, effect: &Model) {
        for (object, known) in effect {
            let before = self.now.get(object);
            for (page, byte) in &known.pages {
                if before.and_then(|before| before.pages.get(page)) != Some(byte) {
                    self.overwritten.entry((*object, *page)).or_default().insert(*byte);
                }
            }
        }
    }

    /// Writes what was torn once more. All else is as the replay of the intent log has left it.
    pub(super) fn mend(
        &mut self,
        lower: &mut Lower<'_>,
        upto: u64,
        checkpoint: &Model,
    ) -> Result<(), String> {
        if !self.in_place {
            return Ok(());
        }
        let say = |why: belay_logical::Error| why.to_string();
        let before = self.outcome.torn;
        for object in (0..OBJECTS).map(ObjectId) {
            if belay_object::Lower::attributes(lower, object).map_err(say)?.is_none() {
                continue;
            }
            for page in 0..PAGES + 4 {
                let Err(why) = lower.read(object, page, &mut [0; PAGE]) else { continue };
                let was_overwritten = self.overwritten.contains_key(&(object, page));
                if !Lower::is_damaged(&why) || !was_overwritten {
                    return Err(format!("page {page} of {object}: {why}"));
                }
                self.outcome.torn += 1;
                // As it was, if it was there.
                let known = checkpoint.get(&object).and_then(|known| known.pages.get(&page));
                let data = [known.copied().unwrap_or(0); PAGE];
                lower.apply(&Operation::Write { object, page, data: &data }).map_err(say)?;
            }
        }
        if self.outcome.torn > before {
            belay_object::Lower::checkpoint(lower, upto).map_err(say)?;
        }
        Ok(())
    }

    /// Whether what is there may be left of a checkpoint: each page is as it was, or as it was
    /// written since.
    pub(super) fn may_be(&self, found: &Model, checkpoint: &Model) -> Result<bool, String> {
        let byte = |known: &Known, page| known.pages.get(&page).copied().unwrap_or(0);
        for (object, known) in found {
            let Some(was) = checkpoint.get(object) else { continue };
            for page in 0..PAGES + 4 {
                let (is, was) = (byte(known, page), byte(was, page));
                let newer = self.overwritten.get(&(*object, page));
                if is != was && !newer.is_some_and(|newer| newer.contains(&is)) {
                    return Err(format!("page {page} of {object} is {is}, not {was} or {newer:?}"));
                }
            }
        }
        Ok(names_of(found) == names_of(checkpoint))
    }
}
