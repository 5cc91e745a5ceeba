//! Which objects were changed lately, and by which transaction last: by that, what was fetched from
//! the layer below meanwhile is known to be still right, or is fetched again.

use belay_object::ObjectId;
use std::collections::BTreeMap;

/// Objects that are remembered.
const MOST: usize = 1 << 16;

/// The last change of each object, as far back as is remembered.
#[derive(Debug, Default)]
pub struct Recent {
    /// What was changed before this transaction is not known any more.
    since: u64,
    last: BTreeMap<ObjectId, u64>,
}

impl Recent {
    /// Remembers nothing from before this transaction.
    pub fn new(since: u64) -> Self {
        Self { since, last: BTreeMap::new() }
    }

    /// A transaction has changed an object.
    pub fn changed(&mut self, object: ObjectId, number: u64) {
        if self.last.len() >= MOST {
            // What else this one has changed is forgotten as well.
            *self = Self::new(number.saturating_add(1));
        }
        self.last.insert(object, number);
    }

    /// The number before which an object was changed last: all that has happened to it is in the
    /// transactions before. If that is not known any more it is the first one of which it is.
    pub fn before(&self, object: ObjectId) -> u64 {
        self.last.get(&object).map_or(self.since, |last| last.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_transaction_has_changed_is_not_forgotten_for_what_it_changes_besides() {
        let mut recent = Recent::new(7);
        for number in 0..MOST as u64 {
            recent.changed(ObjectId(number), 9);
        }
        recent.changed(ObjectId(MOST as u64), 9);
        assert_eq!(recent.before(ObjectId(1)), 10);
    }

    #[test]
    fn what_is_forgotten_counts_as_changed_late() {
        let (one, other) = (ObjectId(1), ObjectId(2));
        let mut recent = Recent::new(7);
        assert_eq!(recent.before(one), 7);
        recent.changed(one, 9);
        assert_eq!((recent.before(one), recent.before(other)), (10, 7));
        for number in 0..MOST as u64 {
            recent.changed(ObjectId(100 + number), 10 + number);
        }
        assert!(recent.last.len() <= MOST);
        assert!(recent.before(other) > 9);
        assert!(recent.before(other) <= 10 + MOST as u64);
    }
}
