//! What becomes of changes to an object that is damaged: they are dropped. All else is as good as
//! before, and reaches the stores.

use crate::error::Error;
use belay_object::{Lower, ObjectId};
use std::collections::BTreeSet;

/// Objects that are remembered; beyond them some are told of again.
const MOST: usize = 1024;

/// Objects of which something was dropped.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    told: BTreeSet<ObjectId>,
}

impl Dropped {
    /// What was done to an object: that is an error, unless it has failed only because this object
    /// is damaged for good. That is told, once.
    pub(crate) fn unless_damaged<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        done: Result<(), Error<B::Error>>,
    ) -> Result<(), Error<B::Error>> {
        let Err(Error::Lower(why)) = done else { return done };
        let is_it =
            B::is_damaged(&why) && below.attributes(object).is_err_and(|how| B::is_damaged(&how));
        if !is_it {
            return Err(Error::Lower(why));
        }
        if self.told.len() >= MOST {
            self.told.clear();
        }
        if self.told.insert(object) {
            tracing::error!("what was written to {object} is lost, as it is damaged: {why}");
        }
        Ok(())
    }
}
