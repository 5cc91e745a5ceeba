//! What a transaction can take of the room of the layer below, at most ([`belay_object::credit`]).
//!
//! What others have paid for is not paid for twice: a page of class `Metadata` that is in the log,
//! and the way to any page that is in the log, are there in the layer below by the time that this
//! transaction reaches it. They were taken into account when they were published, or are there
//! already. Whatever reaches the layer below does so in the order of the log, object by object, and
//! what is merged on the way takes no more than its parts.
//!
//! A page behind the length of an object is written only if the same transaction has the length
//! reach there.

use crate::index::Index;
use belay_object::credit::{creation, ways};
use belay_object::{Class, Credit, ObjectId, Operation, PAGE, Transaction, Undecodable};
use std::collections::BTreeMap;

/// What is known of an object that a transaction changes, before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// How its data are kept.
    pub class: Class,
    /// Its length in bytes.
    pub size: u64,
    /// Whether each page below its length was written, and not punched.
    pub is_whole: bool,
}

/// An object in the middle of a transaction.
#[derive(Clone, Copy, Debug)]
struct State {
    class: Option<Class>,
    /// Its pages, as many as there can be.
    pages: u64,
    size: u64,
    /// Pages from here on are not what they were before the transaction.
    valid: u64,
    /// Pages before this one are there.
    whole: u64,
}

impl Index {
    /// What a transaction can take when it comes behind all that is in here.
    ///
    /// # Errors
    /// If it makes no sense.
    pub(crate) fn cost_of(
        &self,
        transaction: &Transaction,
        known: &BTreeMap<ObjectId, Known>,
    ) -> Result<Credit, Undecodable> {
        let mut states = BTreeMap::new();
        let mut cost = Credit::default();
        for operation in transaction.operations() {
            let operation = operation?;
            let object = operation.object();
            let state =
                states.entry(object).or_insert_with(|| self.state(object, known.get(&object)));
            cost = cost.and(self.cost_in(&operation, state));
        }
        Ok(cost)
    }

    fn state(&self, object: ObjectId, known: Option<&Known>) -> State {
        let changed = self.changed(object);
        let made = changed.and_then(|changed| changed.made).map(|(class, _)| class);
        let size = changed.and_then(|changed| changed.size).map(|(size, _)| size);
        let size = size.or(known.map(|known| known.size)).unwrap_or(u64::MAX);
        let pages = size.div_ceil(PAGE as u64);
        let is_whole = known.is_some_and(|known| known.is_whole);
        let class = made.or(known.map(|known| known.class));
        State { class, pages, size, valid: u64::MAX, whole: if is_whole { pages } else { 0 } }
    }

    fn cost_in(&self, operation: &Operation<'_>, state: &mut State) -> Credit {
        let is_metadata = state.class == Some(Class::Metadata);
        match *operation {
            Operation::Create { object, class, .. } => {
                *state = State { class: Some(class), pages: 0, size: 0, valid: 0, whole: 0 };
                creation(object)
            }
            Operation::Delete { .. } => {
                *state = State { class: None, pages: 0, size: 0, valid: 0, whole: 0 };
                Credit::default()
            }
            Operation::SetSize { size, .. } => {
                let page = size.div_ceil(PAGE as u64);
                let cuts = size < state.size && !size.is_multiple_of(PAGE as u64);
                state.valid = state.valid.min(page);
                state.whole = state.whole.min(page);
                (state.pages, state.size) = (page, size);
                // What is behind the end in its last page becomes zeros.
                Credit::singles(u64::from(cuts && !is_metadata))
            }
            Operation::Punch { page, .. } => {
                state.valid = state.valid.min(page);
                state.whole = state.whole.min(page);
                Credit::default()
            }
            Operation::SetAttributes { .. } | Operation::Keep { .. } => Credit::default(),
            Operation::Pages { object, page, frames } => {
                self.cost_of_pages(object, page, frames.len() as u64, state)
            }
            Operation::Write { object, page, data } => {
                self.cost_of_pages(object, page, (data.len() / PAGE) as u64, state)
            }
        }
    }

    fn cost_of_pages(&self, object: ObjectId, first: u64, count: u64, state: &State) -> Credit {
        let singles = match state.class {
            Some(Class::Metadata) => Credit::default(),
            Some(Class::Data) | None => Credit::singles(count),
        };
        let pages = self.changed(object).map(|changed| &changed.pages);
        let is_there = |page: u64| {
            let found = pages.and_then(|pages| pages.get(&page));
            page < state.whole || page < state.valid && found.is_some_and(|(at, _)| at.is_some())
        };
        let end = first.saturating_add(count);
        let new = match state.class {
            Some(Class::Data) => (first, end.saturating_sub(1), 0),
            // Of those that are there nothing is taken, nor of the ways to them.
            Some(Class::Metadata) | None => {
                let mut new = (first..end).filter(|page| !is_there(*page));
                let Some(least) = new.next() else { return singles };
                let (last, others) = new.fold((least, 0), |(_, count), page| (page, count + 1));
                (least, last, 1 + others)
            }
        };
        let (from, to, pairs) = new;
        // Only what is before: when something behind is cut off later, its way may be gone before
        // this page comes.
        let before = pages.and_then(|pages| pages.range(..from).next_back());
        let before = before.map(|(page, _)| *page).filter(|page| is_there(*page));
        let before = before.max(state.whole.min(from).checked_sub(1));
        let ways = ways(from, to, state.pages, before);
        singles.and(Credit::pairs(pairs + ways))
    }
}
