//! Records that say more than what is to be replayed: what became of names, or that belay asked for
//! it.
//!
//! A successor asks for them several times before it serves, and to find them takes a look at every
//! record, each of which is to be checked. So the scan by which a log is opened keeps them.

use crate::log::Oplog;
use crate::record::{Corrupt, Record};
use belay_memory::Memory;
use std::borrow::Cow;

/// What a scan has found.
#[derive(Debug, Default)]
pub(crate) struct Notable {
    /// So many records were looked at.
    looked_at: usize,
    /// The notable ones of these, with their numbers.
    found: Vec<(usize, Record)>,
}

impl Notable {
    /// The record behind those that were looked at.
    pub(crate) fn look_at(&mut self, record: Record) {
        if record.is_notable() {
            self.found.push((self.looked_at, record));
        }
        self.looked_at += 1;
    }
}

impl Record {
    fn is_notable(&self) -> bool {
        !self.names.is_empty() || self.facts.unique == 0
    }
}

impl<M: Memory> Oplog<M> {
    /// Of [`Oplog::records`] those that say what became of names, or that belay asked for (their
    /// `unique` is 0). Right after the log was opened they need not be looked for.
    pub fn notable(&self) -> impl Iterator<Item = Result<Cow<'_, Record>, Corrupt>> {
        let found = self.notable.found.iter().filter(|(number, _)| self.index.is_live(*number));
        let rest = (self.notable.looked_at..self.count()).filter(|it| self.index.is_live(*it));
        let rest = rest.map(|number| self.record(number));
        let rest = rest.filter(|record| record.as_ref().map_or(true, Record::is_notable));
        found
            .map(|(_, record)| Ok(Cow::Borrowed(record)))
            .chain(rest.map(|record| record.map(Cow::Owned)))
    }

    /// Gives back the memory of what [`Oplog::notable`] need not look for.
    pub fn forget_notable(&mut self) {
        self.notable = Notable::default();
    }
}
