//! What operations come to: all that was done to each object since the last checkpoint, merged.
//!
//! Writes to one page are one, and what was cut off or removed is gone. Where the content of a page
//! is depends on where the operations are from ([`Source`]): the log in the cache's memory
//! ([`crate::index`]), or the intent log ([`crate::intent`]).

use crate::pool::Version;
use belay_object::{Class, ObjectId, Operation, PAGE, Transaction, Undecodable};
use std::collections::BTreeMap;

/// Something, and of which transaction it is.
pub type Since<T> = (T, u64);

/// Where the content of a page is that an operation has written.
pub trait Source<'d>: Copy {
    /// Those of the pages that an operation writes, in their order.
    ///
    /// # Errors
    /// If its pages are none of this kind.
    fn written(operation: &Operation<'d>) -> Result<impl Iterator<Item = Self>, Undecodable>;

    /// Its object was cut off within the page: what is behind so many bytes of it is zeros.
    fn cut(&mut self, bytes: usize);
}

impl<'d> Source<'d> for Version {
    fn written(operation: &Operation<'d>) -> Result<impl Iterator<Item = Self>, Undecodable> {
        match operation {
            Operation::Pages { frames, .. } => {
                Ok(frames.iter().map(|frame| Self::from_number(frame.get())))
            }
            _ => Err(Undecodable::new("a transaction has data of its own")),
        }
    }

    /// Whoever publishes that publishes the page as it is then, too.
    fn cut(&mut self, _: usize) {}
}

/// What has happened to an object since the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<P = Version> {
    /// What the stores have under this number is gone.
    pub gone: Option<u64>,
    /// It was made, after that.
    pub made: Option<Since<Class>>,
    /// What the stores have of it from these bytes on is gone: the least first, each later one less
    /// far back.
    pub cuts: Vec<Since<u64>>,
    /// Its length.
    pub size: Option<Since<u64>>,
    /// Its attributes.
    pub attributes: Option<Since<Vec<u8>>>,
    /// Its pages: where they are, or that they are zeros.
    pub pages: BTreeMap<u64, Since<Option<P>>>,
}

impl<P> Default for Changed<P> {
    fn default() -> Self {
        Self {
            gone: None,
            made: None,
            cuts: Vec::new(),
            size: None,
            attributes: None,
            pages: BTreeMap::new(),
        }
    }
}

impl<P> Changed<P> {
    /// Whether the object is there; `None` if the stores say that.
    pub fn is_there(&self) -> Option<bool> {
        match (self.made, self.gone) {
            (Some(_), _) => Some(true),
            (None, Some(_)) => Some(false),
            (None, None) => None,
        }
    }

    /// Whether the stores have anything to say of a page.
    pub fn is_below(&self, page: u64) -> bool {
        let cut = self.cut().is_some_and(|cut| page >= cut.div_ceil(PAGE as u64));
        self.gone.is_none() && self.made.is_none() && !cut
    }

    /// From which byte on what the stores have of it is gone.
    pub fn cut(&self) -> Option<u64> {
        self.cuts.first().map(|(cut, _)| *cut)
    }

    /// Forgets what is durable.
    fn forget(&mut self, durable: u64) {
        let is_old = |since: u64| since < durable;
        self.gone = self.gone.filter(|since| !is_old(*since));
        self.made = self.made.filter(|(_, since)| !is_old(*since));
        self.cuts.retain(|(_, since)| !is_old(*since));
        self.size = self.size.filter(|(_, since)| !is_old(*since));
        self.attributes.take_if(|(_, since)| is_old(*since));
        self.pages.retain(|_, (_, since)| !is_old(*since));
    }

    fn is_empty(&self) -> bool {
        let is_known = self.size.is_some() || self.attributes.is_some();
        self.is_there().is_none() && !is_known && self.cuts.is_empty() && self.pages.is_empty()
    }
}

/// What has happened to all objects since then.
#[derive(Clone, Debug)]
pub struct Changes<P = Version> {
    objects: BTreeMap<ObjectId, Changed<P>>,
}

impl<P> Default for Changes<P> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<P> Changes<P> {
    /// What has happened to an object; `None` for nothing.
    pub fn of(&self, object: ObjectId) -> Option<&Changed<P>> {
        self.objects.get(&object)
    }

    /// All objects to which something has happened.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Changed<P>)> {
        self.objects.iter().map(|(object, changed)| (*object, changed))
    }

    /// Forgets what is durable; calls `each` with all objects, and what has happened to them,
    /// before.
    pub(crate) fn forget(&mut self, durable: u64, mut each: impl FnMut(ObjectId, &Changed<P>)) {
        self.objects.retain(|object, changed| {
            each(*object, changed);
            changed.forget(durable);
            !changed.is_empty()
        });
    }

    /// Takes in an operation of the transaction with that number, behind all that are in here.
    ///
    /// # Errors
    /// If its pages are none of this kind.
    pub(crate) fn apply<'d>(
        &mut self,
        number: u64,
        operation: &Operation<'d>,
    ) -> Result<(), Undecodable>
    where
        P: Source<'d>,
    {
        let changed = self.objects.entry(operation.object()).or_default();
        match *operation {
            Operation::Create { class, attributes, .. } => {
                changed.made = Some((class, number));
                changed.size = Some((0, number));
                changed.attributes = Some((attributes.to_vec(), number));
            }
            Operation::Delete { .. } => {
                // What was made and removed since is nothing, but what was there before stays gone.
                *changed = Changed { gone: Some(number), ..Changed::default() };
            }
            Operation::Pages { page, .. } | Operation::Write { page, .. } => {
                for (place, page) in P::written(operation)?.zip(page..) {
                    changed.pages.insert(page, (Some(place), number));
                }
            }
            Operation::SetSize { size, .. } => {
                // An earlier cut farther on says nothing more, and is forgotten earlier.
                while changed.cuts.pop_if(|(cut, _)| *cut >= size).is_some() {}
                changed.cuts.push((size, number));
                changed.size = Some((size, number));
                // What is kept is not looked at, however often somebody does this.
                drop(changed.pages.split_off(&size.div_ceil(PAGE as u64)));
                let within = (size % PAGE as u64) as usize;
                if within != 0
                    && let Some((Some(place), _)) = changed.pages.get_mut(&(size / PAGE as u64))
                {
                    place.cut(within);
                }
            }
            Operation::SetAttributes { attributes, .. } => {
                // In the room of those before: a file's change again and again.
                let (kept, since) = changed.attributes.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(attributes);
                *since = number;
            }
            Operation::Punch { page, count, .. } => {
                for page in page..page.saturating_add(count) {
                    changed.pages.insert(page, (None, number));
                }
            }
            Operation::Keep { .. } => {}
        }
        Ok(())
    }
}

/// Pages that are punched between two checkpoints. More are cut off.
pub const MOST_PUNCHED: u64 = 65_536;

/// Pages that a transaction makes zeros of.
pub(crate) fn punched_by(transaction: &Transaction) -> u64 {
    let punched = transaction.operations().map(|operation| match operation {
        Ok(Operation::Punch { count, .. }) => count,
        _ => 0,
    });
    punched.fold(0, u64::saturating_add)
}
