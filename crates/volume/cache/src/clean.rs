//! What was read from the layer below, kept for the next time: pages, and the attributes of
//! objects. It is one process's own, and goes with it.
//!
//! The log has precedence: nothing of this is looked at while the index has something newer. What
//! it says otherwise is right because of these rules, with *n* the first transaction that the index
//! has not taken in:
//!
//! - A page is kept only if the index has nothing of it, so that the layer below says the same of
//!   it before and after any checkpoint up to *n*. A transaction that changes it drops it when it
//!   is taken in ([`Clean::published`]); until that transaction is durable, the page is found in
//!   the index, and is not read from below.
//! - Attributes are kept as the layer below has them, be it that the index has newer ones. What
//!   becomes durable, and so leaves the index, is put in their place ([`Clean::became_durable`]):
//!   it is the last that was published of them.
//! - If the index skips transactions that it has not seen, all is dropped ([`Clean::clear`]).
//!
//! What was used least lately goes first.

use crate::changes::Changed;
use belay_object::{Attributes, ObjectId, Operation, PAGE, Transaction};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What is kept of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Attributes,
    Page(u64),
}

type Key = (ObjectId, Part);

#[derive(Debug)]
enum Content {
    /// `None`: there is no such object.
    Attributes(Option<Attributes>),
    Page(Box<[u8; PAGE]>),
}

impl Content {
    /// About how many bytes of memory it takes.
    fn cost(&self) -> usize {
        /// Of the maps.
        const BESIDE: usize = 160;
        match self {
            Self::Attributes(None) => BESIDE,
            Self::Attributes(Some(found)) => BESIDE + found.attributes.len(),
            Self::Page(_) => BESIDE + PAGE,
        }
    }
}

/// Pages and attributes as the layer below has them.
#[derive(Debug, Default)]
pub struct Clean {
    /// Bytes that may be used.
    room: usize,
    used: usize,
    /// Counts the uses.
    now: u64,
    kept: BTreeMap<Key, (Content, u64)>,
    /// By their last use.
    order: BTreeMap<u64, Key>,
}

impl Clean {
    /// Keeps nothing yet, and never more than so many bytes.
    pub fn new(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Whether so many pages are a small part of what it may keep.
    pub fn has_room_for(&self, pages: usize) -> bool {
        self.room / PAGE / 4 >= pages
    }

    /// Bytes that it keeps, about.
    pub fn used(&self) -> usize {
        self.used
    }

    fn touch(&mut self, key: Key) -> Option<&Content> {
        let (content, last) = self.kept.get_mut(&key)?;
        self.order.remove(last);
        self.now += 1;
        *last = self.now;
        self.order.insert(self.now, key);
        Some(content)
    }

    fn keep(&mut self, key: Key, content: Content) {
        self.remove(key);
        let cost = content.cost();
        if cost > self.room {
            return;
        }
        self.now += 1;
        self.used += cost;
        self.order.insert(self.now, key);
        self.kept.insert(key, (content, self.now));
        while self.used > self.room
            && let Some((_, least)) = self.order.pop_first()
        {
            self.remove(least);
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some((content, last)) = self.kept.remove(&key) {
            self.used = self.used.saturating_sub(content.cost());
            self.order.remove(&last);
        }
    }

    fn drop_pages(&mut self, object: ObjectId, pages: RangeInclusive<u64>) {
        if pages.is_empty() {
            return;
        }
        let ends = (object, Part::Page(*pages.start()))..=(object, Part::Page(*pages.end()));
        let gone: Vec<Key> = self.kept.range(ends).map(|(key, _)| *key).collect();
        for key in gone {
            self.remove(key);
        }
    }

    /// Reads a page; false if it is not kept.
    pub fn page(&mut self, object: ObjectId, page: u64, out: &mut [u8; PAGE]) -> bool {
        match self.touch((object, Part::Page(page))) {
            Some(Content::Page(content)) => {
                *out = **content;
                true
            }
            _ => false,
        }
    }

    /// Whether a page is kept.
    pub fn has_page(&self, object: ObjectId, page: u64) -> bool {
        self.kept.contains_key(&(object, Part::Page(page)))
    }

    /// Keeps a page that was read, and of which the index has nothing.
    pub fn keep_page(&mut self, object: ObjectId, page: u64, content: &[u8; PAGE]) {
        self.keep((object, Part::Page(page)), Content::Page(Box::new(*content)));
    }

    /// What the layer below says of an object; `None` if that is not kept.
    pub fn attributes(&mut self, object: ObjectId) -> Option<Option<Attributes>> {
        match self.touch((object, Part::Attributes)) {
            Some(Content::Attributes(found)) => Some(found.clone()),
            _ => None,
        }
    }

    /// Keeps what the layer below says of an object.
    pub fn keep_attributes(&mut self, object: ObjectId, found: Option<&Attributes>) {
        self.keep((object, Part::Attributes), Content::Attributes(found.cloned()));
    }

    /// Drops the pages that a transaction changes. It is in the index.
    pub fn published(&mut self, transaction: &Transaction) {
        for operation in transaction.operations().flatten() {
            let object = operation.object();
            match operation {
                Operation::Create { .. } | Operation::Delete { .. } => {
                    self.drop_pages(object, 0..=u64::MAX);
                }
                // The last page is another one as well, if it ends within it.
                Operation::SetSize { size, .. } => {
                    self.drop_pages(object, size / PAGE as u64..=u64::MAX);
                }
                Operation::Pages { page, frames, .. } => {
                    self.drop_run(object, page, frames.len() as u64);
                }
                Operation::Write { page, data, .. } => {
                    self.drop_run(object, page, (data.len() / PAGE) as u64);
                }
                Operation::Punch { page, count, .. } => {
                    self.drop_run(object, page, count);
                }
                Operation::SetAttributes { .. } | Operation::Keep { .. } => {}
            }
        }
    }

    fn drop_run(&mut self, object: ObjectId, page: u64, count: u64) {
        if let Some(more) = count.checked_sub(1) {
            self.drop_pages(object, page..=page.saturating_add(more));
        }
    }

    /// The index is about to forget what has happened to an object before this transaction: the
    /// layer below says it now.
    pub fn became_durable(&mut self, object: ObjectId, changed: &Changed, durable: u64) {
        let is_durable = |since: u64| since < durable;
        match (changed.made, changed.gone) {
            (Some((class, since)), _) if is_durable(since) => {
                let new = Attributes { size: 0, class, attributes: Vec::new() };
                self.keep_attributes(object, Some(&new));
            }
            (_, Some(since)) if is_durable(since) => self.remove((object, Part::Attributes)),
            _ => {}
        }
        let Some(Some(mut found)) = self.attributes(object) else { return };
        // What is newer than that stays in the index, and has precedence.
        if let Some((size, since)) = changed.size
            && is_durable(since)
        {
            found.size = size;
        }
        if let Some((attributes, since)) = &changed.attributes
            && is_durable(*since)
        {
            found.attributes.clone_from(attributes);
        }
        self.keep_attributes(object, Some(&found));
    }

    /// Drops all of it.
    pub fn clear(&mut self) {
        *self = Self::new(self.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belay_object::Class;

    fn is_kept(clean: &mut Clean, object: u64, page: u64) -> bool {
        clean.page(ObjectId(object), page, &mut [0; PAGE])
    }

    fn one(operation: &Operation<'_>) -> Transaction {
        let mut transaction = Transaction::new();
        transaction.add(operation);
        transaction
    }

    #[test]
    fn what_was_used_least_lately_goes() {
        let mut clean = Clean::new(10 * 4500);
        for page in 0..10 {
            clean.keep_page(ObjectId(1), page, &[page as u8; PAGE]);
        }
        assert!(is_kept(&mut clean, 1, 0));
        clean.keep_page(ObjectId(2), 0, &[7; PAGE]);
        clean.keep_page(ObjectId(2), 0, &[8; PAGE]);
        assert!(!is_kept(&mut clean, 1, 1) && is_kept(&mut clean, 1, 0));
        let mut out = [0; PAGE];
        assert!(clean.page(ObjectId(2), 0, &mut out) && out == [8; PAGE]);
        for number in 0..1000 {
            clean.keep_attributes(ObjectId(number), None);
            clean.keep_page(ObjectId(number), number, &[0; PAGE]);
            assert!(clean.used() <= 10 * 4500);
            let all: usize = clean.kept.values().map(|(content, _)| content.cost()).sum();
            assert_eq!((all, clean.kept.len()), (clean.used(), clean.order.len()));
        }
        clean.clear();
        assert_eq!((clean.used(), clean.order.len()), (0, 0));
        let mut none = Clean::new(0);
        none.keep_page(ObjectId(1), 0, &[0; PAGE]);
        assert!(!is_kept(&mut none, 1, 0));
    }

    #[test]
    fn what_is_changed_is_dropped() {
        let object = ObjectId(5);
        let pages = |operation: &Operation<'_>| {
            let mut clean = Clean::new(1 << 20);
            for page in 0..10 {
                clean.keep_page(object, page, &[1; PAGE]);
            }
            clean.keep_page(ObjectId(4), 3, &[1; PAGE]);
            clean.keep_page(ObjectId(6), 3, &[1; PAGE]);
            clean.published(&one(operation));
            assert!(is_kept(&mut clean, 4, 3) && is_kept(&mut clean, 6, 3));
            (0..10).filter(|page| is_kept(&mut clean, 5, *page)).collect::<Vec<u64>>()
        };
        let frames = [0.into(); 2];
        assert_eq!(pages(&Operation::Pages { object, page: 1, frames: &frames })[..2], [0, 3]);
        assert_eq!(pages(&Operation::SetSize { object, size: 2 * 4096 }), [0, 1]);
        assert_eq!(pages(&Operation::SetSize { object, size: 2 * 4096 + 1 }), [0, 1]);
        assert_eq!(pages(&Operation::Punch { object, page: 0, count: 9 }), [9]);
        assert_eq!(pages(&Operation::Punch { object, page: 1, count: 0 }).len(), 10);
        assert_eq!(pages(&Operation::Punch { object, page: 9, count: 1 << 62 }).len(), 9);
        assert!(pages(&Operation::Delete { object }).is_empty());
        assert_eq!(pages(&Operation::SetAttributes { object, attributes: b"a" }).len(), 10);
    }

    #[test]
    fn what_becomes_durable_is_what_the_layer_below_says() {
        let object = ObjectId(5);
        let old = Attributes { size: 1, class: Class::Data, attributes: vec![1] };
        let mut clean = Clean::new(1 << 20);
        clean.keep_attributes(object, Some(&old));
        // The length is durable, the attributes are not.
        let mut changed =
            Changed { size: Some((7, 3)), attributes: Some((vec![2], 5)), ..Changed::default() };
        clean.became_durable(object, &changed, 4);
        assert_eq!(clean.attributes(object), Some(Some(Attributes { size: 7, ..old.clone() })));
        changed.size = None;
        clean.became_durable(object, &changed, 6);
        let new = Attributes { size: 7, attributes: vec![2], ..old };
        assert_eq!(clean.attributes(object), Some(Some(new.clone())));
        // It is removed, and made again.
        let mut changed = Changed { gone: Some(7), ..Changed::default() };
        clean.became_durable(object, &changed, 7);
        assert_eq!(clean.attributes(object), Some(Some(new)));
        clean.became_durable(object, &changed, 8);
        assert_eq!(clean.attributes(object), None);
        changed.made = Some((Class::Metadata, 8));
        changed.size = Some((9, 8));
        changed.attributes = Some((vec![3], 8));
        clean.became_durable(object, &changed, 9);
        let again = Attributes { size: 9, class: Class::Metadata, attributes: vec![3] };
        assert_eq!(clean.attributes(object), Some(Some(again)));
        // Of what is not known, a part is not enough.
        let changed = Changed { size: Some((1, 1)), ..Changed::default() };
        clean.became_durable(ObjectId(6), &changed, 9);
        assert_eq!(clean.attributes(ObjectId(6)), None);
    }
}
