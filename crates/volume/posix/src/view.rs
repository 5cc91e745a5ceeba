//! What a request sees and changes. It sees its own changes; others see all of them when it is
//! done, or none. To give them up it is enough to drop the view: so caches need no rollback.

mod before;

use crate::attributes::{DIRECTORY, Metadata, TYPE};
use crate::error::{Error, Result};
use crate::own::ORPHANS;
use before::{Before, write};
use belay_cache::publisher::Draft;
use belay_cache::{Known, Publisher};
use belay_memory::Memory;
use belay_object::{Class, Lower, ObjectId, Operation, PAGE, Room};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The content of a page.
pub type Page = [u8; PAGE];

/// An object as the request sees it.
#[derive(Debug)]
struct Seen {
    /// It is new.
    made: Option<Class>,
    class: Class,
    size: u64,
    old_size: u64,
    metadata: Metadata,
    old_metadata: Metadata,
    is_changed: bool,
    /// The least length that it has had meanwhile: what was there behind that is gone.
    cut: Option<u64>,
    /// Pages that are zeros, whatever was there.
    punched: Vec<Range<u64>>,
    pages: BTreeMap<u64, Box<Page>>,
    written: BTreeSet<u64>,
}

impl Seen {
    fn new(made: Option<Class>, class: Class, size: u64, metadata: Metadata) -> Self {
        Self {
            made,
            class,
            size,
            old_size: size,
            metadata,
            old_metadata: metadata,
            is_changed: false,
            cut: None,
            punched: Vec::new(),
            pages: BTreeMap::new(),
            written: BTreeSet::new(),
        }
    }
}

impl Seen {
    /// What it was before the request. The pages of directories, and of what is kept like one, are
    /// written one after another, and stay.
    fn known(&self) -> Option<Known> {
        let (class, size) = (self.class, self.old_size);
        let is_whole = class == Class::Metadata && self.metadata.mode & TYPE == DIRECTORY;
        self.made.is_none().then_some(Known { class, size, is_whole })
    }
}

/// What a request sees and changes.
#[derive(Debug)]
pub struct View<'v, M: Memory, B: Lower> {
    publisher: &'v mut Publisher<M>,
    below: &'v mut B,
    /// `None`: it is removed.
    objects: BTreeMap<ObjectId, Option<Seen>>,
    /// What takes the place of another file.
    kept: Vec<ObjectId>,
}

impl<'v, M: Memory, B: Lower> View<'v, M, B> {
    /// Of a request that has done nothing yet.
    pub fn new(publisher: &'v mut Publisher<M>, below: &'v mut B) -> Self {
        Self { publisher, below, objects: BTreeMap::new(), kept: Vec::new() }
    }

    fn seen(&mut self, object: ObjectId) -> Result<&mut Seen, B::Error> {
        if !self.objects.contains_key(&object) {
            let found = self.publisher.attributes(self.below, object)?.ok_or(Errno::STALE)?;
            let metadata = Metadata::read(&found.attributes, found.size).map_err(Error::Damaged)?;
            self.objects.insert(object, Some(Seen::new(None, found.class, found.size, metadata)));
        }
        self.objects.get_mut(&object).and_then(Option::as_mut).ok_or(Errno::STALE.into())
    }

    /// What is kept of a file.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn metadata(&mut self, object: ObjectId) -> Result<Metadata, B::Error> {
        Ok(self.seen(object)?.metadata)
    }

    /// Changes that.
    ///
    /// # Errors
    /// As for [`View::metadata`].
    pub fn change(&mut self, object: ObjectId) -> Result<&mut Metadata, B::Error> {
        let seen = self.seen(object)?;
        seen.is_changed = true;
        Ok(&mut seen.metadata)
    }

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// As for [`View::metadata`].
    pub fn size(&mut self, object: ObjectId) -> Result<u64, B::Error> {
        Ok(self.seen(object)?.size)
    }

    /// Changes the length of a file. What goes is gone, and what comes is zeros.
    ///
    /// # Errors
    /// As for [`View::metadata`]; those of reading.
    pub fn set_size(&mut self, object: ObjectId, size: u64) -> Result<(), B::Error> {
        let within = (size % PAGE as u64) as usize;
        let last = size / PAGE as u64;
        if size < self.seen(object)?.size {
            if within != 0 {
                // What is behind the new end must not come back.
                let tail = self.page_mut(object, last)?.get_mut(within..).unwrap_or_default();
                tail.fill(0);
            }
            let seen = self.seen(object)?;
            seen.cut = Some(seen.cut.map_or(size, |cut| cut.min(size)));
            let is_there = |page: &u64| page * (PAGE as u64) < size;
            seen.pages.retain(|page, _| is_there(page));
            seen.written.retain(is_there);
        }
        self.seen(object)?.size = size;
        Ok(())
    }

    /// Makes zeros of whole pages, which take no room then, and are not read.
    ///
    /// # Errors
    /// As for [`View::metadata`].
    pub fn punch(&mut self, object: ObjectId, page: u64, count: u64) -> Result<(), B::Error> {
        let punched = page..page.saturating_add(count);
        if punched.is_empty() {
            return Ok(());
        }
        let seen = self.seen(object)?;
        seen.pages.retain(|page, _| !punched.contains(page));
        seen.written.retain(|page| !punched.contains(page));
        seen.punched.push(punched);
        Ok(())
    }

    /// Reads a page of a file.
    ///
    /// # Errors
    /// As for [`View::metadata`]; those of reading.
    pub fn page(&mut self, object: ObjectId, page: u64) -> Result<&Page, B::Error> {
        Ok(self.page_mut_unwritten(object, page)?)
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// As for [`View::page`].
    pub fn page_mut(&mut self, object: ObjectId, page: u64) -> Result<&mut Page, B::Error> {
        self.seen(object)?.written.insert(page);
        self.page_mut_unwritten(object, page)
    }

    /// A page all of which is written anew: what it was is not read.
    ///
    /// # Errors
    /// As for [`View::metadata`].
    pub fn new_page(&mut self, object: ObjectId, page: u64) -> Result<&mut Page, B::Error> {
        let seen = self.seen(object)?;
        seen.written.insert(page);
        Ok(seen.pages.entry(page).or_insert_with(|| Box::new([0; PAGE])))
    }

    fn page_mut_unwritten(&mut self, object: ObjectId, page: u64) -> Result<&mut Page, B::Error> {
        let seen = self.seen(object)?;
        let end = seen.cut.map_or(seen.old_size, |cut| cut.min(seen.old_size));
        let is_punched = seen.punched.iter().any(|punched| punched.contains(&page));
        let is_old = seen.made.is_none() && !is_punched && page * (PAGE as u64) < end;
        if !seen.pages.contains_key(&page) {
            let mut content = Box::new([0; PAGE]);
            if is_old {
                self.publisher.read(self.below, object, page, &mut content)?;
            }
            self.seen(object)?.pages.insert(page, content);
        }
        let seen = self.seen(object)?;
        seen.pages.get_mut(&page).map(Box::as_mut).ok_or(Error::Damaged("a page is lost"))
    }

    /// How much room the stores have.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn room(&mut self) -> Result<Room, B::Error> {
        Ok(self.publisher.room(self.below)?)
    }

    /// Makes an object.
    pub fn make(&mut self, object: ObjectId, class: Class, metadata: Metadata) {
        self.objects.insert(object, Some(Seen::new(Some(class), class, 0, metadata)));
    }

    /// Has the data of an object be durable with this request, as it takes the place of another
    /// one.
    pub fn keep(&mut self, object: ObjectId) {
        self.kept.push(object);
    }

    /// Removes an object.
    pub fn remove(&mut self, object: ObjectId) {
        self.objects.insert(object, None);
    }

    /// Publishes all that was changed, with the request that it is of and the reply to that.
    ///
    /// # Errors
    /// Those of the cache, above all that it is full: nothing is changed then.
    pub fn commit(mut self, unique: u64, reply: &[u8]) -> Result<(), B::Error> {
        let draft = self.draft(&[])?;
        match draft.is_empty() {
            true => Ok(()),
            false => Ok(self.publisher.commit(draft, unique, reply).map(|_| ())?),
        }
    }

    /// The same, as direct I/O takes: it can be undone until it is durable ([`Publisher::undo`]).
    /// Gives its number, or `None` if nothing was changed.
    ///
    /// # Errors
    /// As for [`View::commit`]; `EINVAL` if that cannot be undone; those of reading what was there
    /// before.
    pub fn commit_revocably(mut self, unique: u64, reply: &[u8]) -> Result<Option<u64>, B::Error> {
        let objects: Vec<ObjectId> = self.objects.keys().copied().collect();
        let mut before = Vec::new();
        for object in &objects {
            before.push(self.before(*object)?);
        }
        let draft = self.draft(&objects)?;
        if draft.is_empty() {
            return Ok(None);
        }
        let mut undo = self.publisher.draft();
        for before in before.into_iter().flatten() {
            if let Err(why) = before.put_back(self.publisher, &mut undo) {
                [draft, undo].into_iter().for_each(|draft| self.publisher.drop_draft(draft));
                return Err(why);
            }
        }
        Ok(Some(self.publisher.commit_revocably(draft, undo, unique, reply)?))
    }

    /// What an object was before the request, as far as that has changed it; `None` if it has not.
    fn before(&mut self, object: ObjectId) -> Result<Option<Before>, B::Error> {
        let Some(Some(seen)) = self.objects.get(&object) else { return Err(Errno::INVAL.into()) };
        if seen.made.is_some() || seen.cut.is_some() || !seen.punched.is_empty() {
            return Err(Errno::INVAL.into());
        }
        if !seen.is_changed && seen.written.is_empty() && seen.size == seen.old_size {
            return Ok(None);
        }
        let mut before = Before {
            object,
            attributes: seen.is_changed.then(|| seen.old_metadata.to_bytes()),
            size: (seen.size != seen.old_size).then_some(seen.old_size),
            pages: Vec::new(),
        };
        let pages = seen.old_size.div_ceil(PAGE as u64);
        let written: Vec<u64> = seen.written.range(..pages).copied().collect();
        for page in written {
            let mut content = Box::new([0; PAGE]);
            match self.publisher.read(self.below, object, page, &mut content) {
                Ok(()) => before.pages.push((page, content)),
                // Nobody could read what was there, nor can anybody bring it back.
                Err(belay_cache::Error::Lower(why)) if B::is_damaged(&why) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(Some(before))
    }

    /// All that was changed, with what is to be durable besides.
    fn draft(&mut self, durable: &[ObjectId]) -> Result<Draft, B::Error> {
        let mut draft = self.publisher.draft();
        if self.takes_away() {
            draft.takes_away();
        }
        for object in self.kept.iter().chain(durable).copied() {
            self.publisher.add(&mut draft, &Operation::Keep { object });
        }
        for (object, seen) in &self.objects {
            let object = *object;
            if let Some(known) = seen.as_ref().and_then(Seen::known) {
                draft.tell(object, known);
            }
            let Some(seen) = seen else {
                self.publisher.add(&mut draft, &Operation::Delete { object });
                continue;
            };
            if let Some(class) = seen.made {
                self.publisher.create(&mut draft, object, class, &seen.metadata.to_bytes());
            } else if seen.is_changed {
                let attributes = seen.metadata.to_bytes();
                let set = Operation::SetAttributes { object, attributes: &attributes };
                self.publisher.add(&mut draft, &set);
            }
            if let Some(size) = seen.cut.filter(|_| seen.made.is_none()) {
                self.publisher.add(&mut draft, &Operation::SetSize { object, size });
            }
            for Range { start, end } in seen.punched.iter().cloned() {
                let punch = Operation::Punch { object, page: start, count: end - start };
                self.publisher.add(&mut draft, &punch);
            }
            let written = seen.written.iter();
            let pages =
                written.filter_map(|page| seen.pages.get(page).map(|content| (*page, content)));
            if let Err(why) = write(self.publisher, &mut draft, object, pages) {
                self.publisher.drop_draft(draft);
                return Err(why);
            }
            if seen.size != seen.cut.filter(|_| seen.made.is_none()).unwrap_or(seen.old_size) {
                self.publisher.add(&mut draft, &Operation::SetSize { object, size: seen.size });
            }
        }
        Ok(draft)
    }

    /// Whether a file goes, or loses its last name, or becomes shorter, or pages of it zeros, and
    /// none is made. For that there must be room when there is none for all else.
    fn takes_away(&self) -> bool {
        let is_less = |(object, seen): (&ObjectId, &Option<Seen>)| {
            let orphans = |seen: &Seen| *object == ORPHANS && !seen.written.is_empty();
            let has_less =
                |seen: &Seen| seen.cut.is_some() || !seen.punched.is_empty() || orphans(seen);
            seen.as_ref().is_none_or(has_less)
        };
        let is_made = |seen: &Seen| seen.made.is_some();
        !self.objects.values().flatten().any(is_made) && self.objects.iter().any(is_less)
    }
}
