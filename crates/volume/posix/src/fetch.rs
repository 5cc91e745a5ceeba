//! How a message that needs something of the layer below lets others be handled meanwhile.
//!
//! Messages are handled one after the other, each as a whole. So nobody sees half of anything, and
//! no object need be locked. One that lacks something has done nothing: it is put aside, what it
//! lacks is fetched, and it is handled again from its beginning. What was fetched is used if
//! nothing was published since that could say otherwise.

use crate::attributes::Time;
use crate::dispatch::{Module, Outcome};
use belay_cache::publisher::Moment;
use belay_memory::Memory;
use belay_object::{Attributes, Lower, ObjectId, Operation, PAGE, Room};
use std::sync::Arc;
use thiserror::Error;

/// A part of what the layer below has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What is known of an object.
    Attributes(ObjectId),
    /// Pages of an object.
    Pages {
        /// The object.
        object: ObjectId,
        /// The first page.
        page: u64,
        /// How many.
        count: usize,
    },
    /// How much room there is.
    Room,
}

impl Part {
    fn object(self) -> Option<ObjectId> {
        match self {
            Self::Attributes(object) | Self::Pages { object, .. } => Some(object),
            Self::Room => None,
        }
    }
}

/// What a message lacks, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    part: Part,
    since: Moment,
}

/// Why the layer below does not say it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Miss<E> {
    /// It must be fetched.
    #[error("it was not fetched")]
    Lacking,
    /// It cannot.
    #[error("{0}")]
    Below(Arc<E>),
}

fn below<E>(why: E) -> Miss<E> {
    Miss::Below(Arc::new(why))
}

#[derive(Debug)]
enum Content {
    Attributes(Option<Attributes>),
    Pages(Vec<u8>),
    Room(Room),
}

/// What the layer below has said.
type Told<E> = Result<Content, Arc<E>>;

/// The layer below, as a message sees it: what was fetched of it, or all of it if it is waited for.
#[derive(Debug)]
pub struct Fetched<B: Lower> {
    parts: Vec<(Lack, Told<B::Error>)>,
    lacking: Option<Part>,
    waited_for: Option<B>,
}

impl<B: Lower> Default for Fetched<B> {
    fn default() -> Self {
        Self { parts: Vec::new(), lacking: None, waited_for: None }
    }
}

impl<B: Lower> Fetched<B> {
    /// All of the layer below. Who handles a message with this waits for it, and so do all who come
    /// later.
    pub fn waiting_for(below: B) -> Self {
        Self { waited_for: Some(below), ..Self::default() }
    }

    /// The layer below, if it is waited for.
    pub fn into_below(self) -> Option<B> {
        self.waited_for
    }

    /// Fetches what is lacking, however long it takes. Others are handled meanwhile.
    pub fn fetch(&mut self, below: &mut B, lack: Lack) {
        let content = match lack.part {
            Part::Attributes(object) => below.attributes(object).map(Content::Attributes),
            Part::Pages { object, page, count } => {
                let mut out = vec![0; count * PAGE];
                below.read(object, page, &mut out).map(|()| Content::Pages(out))
            }
            Part::Room => below.room().map(Content::Room),
        };
        self.parts.push((lack, content.map_err(Arc::new)));
    }

    /// What was fetched, if `find` finds it in there. If not, this is what is lacking first.
    fn find<T>(
        &mut self,
        part: Part,
        find: impl Fn(Part, &Content) -> Option<T>,
    ) -> Result<T, Miss<B::Error>> {
        for (lack, content) in &self.parts {
            match content {
                Ok(content) => {
                    if let Some(found) = find(lack.part, content) {
                        return Ok(found);
                    }
                }
                Err(why) if lack.part == part => return Err(Miss::Below(Arc::clone(why))),
                Err(_) => {}
            }
        }
        self.lacking.get_or_insert(part);
        Err(Miss::Lacking)
    }

    /// What only a layer that is waited for can say or do.
    fn waited_for(&mut self) -> Result<&mut B, Miss<B::Error>> {
        self.waited_for.as_mut().ok_or(Miss::Lacking)
    }
}

impl<B: Lower> Lower for Fetched<B> {
    type Error = Miss<B::Error>;

    fn attributes(&mut self, object: ObjectId) -> Result<Option<Attributes>, Self::Error> {
        if let Some(all) = &mut self.waited_for {
            return all.attributes(object).map_err(below);
        }
        self.find(Part::Attributes(object), |part, content| match content {
            Content::Attributes(found) if part.object() == Some(object) => Some(found.clone()),
            _ => None,
        })
    }

    fn is_lacking(why: &Self::Error) -> bool {
        matches!(why, Miss::Lacking)
    }

    fn is_damaged(why: &Self::Error) -> bool {
        matches!(why, Miss::Below(why) if B::is_damaged(why))
    }

    fn read(&mut self, object: ObjectId, page: u64, out: &mut [u8]) -> Result<(), Self::Error> {
        if let Some(all) = &mut self.waited_for {
            return all.read(object, page, out).map_err(below);
        }
        let length = out.len();
        let wanted = Part::Pages { object, page, count: length.div_ceil(PAGE) };
        let found = self.find(wanted, |part, content| {
            let (Part::Pages { object: of, page: first, .. }, Content::Pages(bytes)) =
                (part, content)
            else {
                return None;
            };
            let skipped = usize::try_from(page.checked_sub(first)?).ok()?.checked_mul(PAGE)?;
            let found = bytes.get(skipped..skipped.checked_add(length)?)?;
            (of == object).then(|| found.to_vec())
        })?;
        out.copy_from_slice(&found);
        Ok(())
    }

    fn room(&mut self) -> Result<Room, Self::Error> {
        if let Some(all) = &mut self.waited_for {
            return all.room().map_err(below);
        }
        self.find(Part::Room, |_, content| match content {
            Content::Room(room) => Some(*room),
            _ => None,
        })
    }

    fn epoch(&mut self) -> Result<u64, Self::Error> {
        self.waited_for()?.epoch().map_err(below)
    }

    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Self::Error> {
        self.waited_for()?.apply(operation).map_err(below)
    }

    fn checkpoint(&mut self, upto: u64) -> Result<u64, Self::Error> {
        self.waited_for()?.checkpoint(upto).map_err(below)
    }

    fn upto(&mut self) -> Result<u64, Self::Error> {
        self.waited_for()?.upto().map_err(below)
    }

    fn append_intent(&mut self, bytes: &[u8]) -> Result<bool, Self::Error> {
        self.waited_for()?.append_intent(bytes).map_err(below)
    }

    fn intents(&mut self) -> Result<Vec<Vec<u8>>, Self::Error> {
        self.waited_for()?.intents().map_err(below)
    }
}

impl<M: Memory, B: Lower> Module<M, Fetched<B>> {
    /// Handles a message with what was fetched for it so far, as [`Module::handle`] does. If it
    /// lacks something, nothing has happened.
    ///
    /// # Errors
    /// What is to be fetched before it is handled again.
    pub fn handle_with(
        &mut self,
        fetched: &mut Fetched<B>,
        message: &[u8],
        now: Time,
    ) -> Result<Outcome, Lack> {
        match self.with(fetched, |this| this.handle(message, now)) {
            // Only for want of it has it failed: what is lacking fails everything.
            (Outcome::Fault(..), Some(lack)) => Err(lack),
            (outcome, _) => Ok(outcome),
        }
    }

    /// The files that have no name, with what was fetched for that so far.
    ///
    /// # Errors
    /// What is to be fetched before that is asked again; `None` if they cannot be had.
    pub fn orphans_with(
        &mut self,
        fetched: &mut Fetched<B>,
    ) -> Result<Vec<ObjectId>, Option<Lack>> {
        match self.with(fetched, Self::orphans) {
            (Ok(found), _) => Ok(found),
            (Err(_), lack) => Err(lack),
        }
    }

    /// Does something with what was fetched for it so far; tells what was lacking first.
    fn with<T>(
        &mut self,
        fetched: &mut Fetched<B>,
        act: impl FnOnce(&mut Self) -> T,
    ) -> (T, Option<Lack>) {
        // If the memory makes no sense, whoever reads it is told.
        let _ = self.publisher().refresh::<Miss<B::Error>>();
        let publisher = self.publisher();
        // What is published from here on, be it by this message, may not be in what is fetched.
        let since = publisher.moment();
        fetched.lacking = None;
        fetched.parts.retain(|(lack, _)| {
            let object = lack.part.object();
            object.is_none_or(|object| publisher.is_as_it_was(object, lack.since))
        });
        std::mem::swap(self.below(), fetched);
        let done = act(self);
        std::mem::swap(self.below(), fetched);
        (done, fetched.lacking.map(|part| Lack { part, since }))
    }
}
