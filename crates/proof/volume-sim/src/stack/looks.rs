//! What is there, compared with what must be.

use super::{Failure, Lives, OBJECTS, PAGES, Stack};
use belay_object::{ObjectId, PAGE};
use rand::Rng;

impl Stack {
    /// Reads one page.
    pub(super) fn look(&mut self, lives: &mut Lives<'_>) -> Result<(), String> {
        let object = ObjectId(self.random.random_range(0..OBJECTS));
        let page = self.random.random_range(0..PAGES + 2);
        self.outcome.pages += 1;
        self.look_at(lives, object, page)
    }

    pub(super) fn look_at(
        &self,
        lives: &mut Lives<'_>,
        object: ObjectId,
        page: u64,
    ) -> Result<(), String> {
        let say = |why: Failure| format!("{object}: {why}");
        let found = lives.module.0.attributes(&mut lives.lower, object).map_err(say)?;
        let known = self.now.get(&object);
        let (found, known) = match (found, known) {
            (None, None) => return Ok(()),
            (Some(found), Some(known)) => (found, known),
            (found, known) => return Err(format!("{object} is {found:?}, not {known:?}")),
        };
        if (found.size, &found.attributes) != (known.size, &known.attributes) {
            return Err(format!("{object} is {found:?}, not {known:?}"));
        }
        let mut content = [1; PAGE];
        lives.module.0.read(&mut lives.lower, object, page, &mut content).map_err(say)?;
        let wanted = known.pages.get(&page).copied().unwrap_or(0);
        match content == [wanted; PAGE] {
            true => Ok(()),
            false => Err(format!("page {page} of {object} is {}, not {wanted}", content[0])),
        }
    }

    pub(super) fn compare(&mut self, lives: &mut Lives<'_>) -> Result<(), String> {
        self.outcome.pages += OBJECTS * (PAGES + 4);
        for object in (0..OBJECTS).map(ObjectId) {
            for page in 0..PAGES + 4 {
                self.look_at(lives, object, page)?;
            }
        }
        Ok(())
    }
}
