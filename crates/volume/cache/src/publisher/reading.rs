//! What a publisher reads: what the log has, and what the layer below says of all else.

use super::Publisher;
use crate::changes::Changed;
use crate::error::Error;
use belay_memory::Memory;
use belay_object::{Attributes, Class, Lower, ObjectId, PAGE, Room};

/// Pages that are read with one that is missed.
const MOST_AHEAD: usize = 32;

impl<M: Memory> Publisher<M> {
    /// What is known of an object; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Held`]; [`Error::Damaged`]; those of the layer below.
    pub fn attributes<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
    ) -> Result<Option<Attributes>, Error<B::Error>> {
        self.is_free(object)?;
        self.refresh()?;
        self.attributes_now(below, object)
    }

    /// The same, with what is known here of the log.
    fn attributes_now<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
    ) -> Result<Option<Attributes>, Error<B::Error>> {
        let changed = self.index.changed(object);
        let mut found = match changed.and_then(|changed| changed.is_there()) {
            Some(false) => return Ok(None),
            Some(true) => {
                let made = changed.and_then(|changed| changed.made);
                let class = made.map_or(Class::Data, |(class, _)| class);
                Attributes { size: 0, class, attributes: Vec::new() }
            }
            None => {
                let found = match self.clean.attributes(object) {
                    Some(found) => found,
                    None => {
                        let found = below.attributes(object).map_err(Error::Lower)?;
                        self.clean.keep_attributes(object, found.as_ref());
                        found
                    }
                };
                match found {
                    None => return Ok(None),
                    Some(found) => found,
                }
            }
        };
        if let Some(changed) = changed {
            found.size = changed.size.map_or(found.size, |(size, _)| size);
            if let Some((attributes, _)) = &changed.attributes {
                found.attributes.clone_from(attributes);
            }
        }
        Ok(Some(found))
    }

    /// Reads one page of an object that there is. What was never written is zeros.
    ///
    /// # Errors
    /// [`Error::Held`]; [`Error::Damaged`]; those of the layer below.
    pub fn read<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        page: u64,
        out: &mut [u8; PAGE],
    ) -> Result<(), Error<B::Error>> {
        self.is_free(object)?;
        loop {
            self.refresh()?;
            let durable = self.index.durable();
            let changed = self.index.changed(object);
            let found = changed.and_then(|changed| changed.pages.get(&page).copied());
            match found {
                Some((Some(version), _)) => {
                    if self.shared.read_page(version, object, page, out) {
                        return Ok(());
                    }
                    // It has become durable meanwhile, or the memory is damaged.
                    if self.shared.durable() == durable {
                        return Err(Error::Damaged("a page does not match its checksum"));
                    }
                }
                Some((None, _)) => {
                    out.fill(0);
                    return Ok(());
                }
                None if changed.is_none_or(|changed| changed.is_below(page)) => {
                    return self.read_below(below, object, page, out);
                }
                None => {
                    out.fill(0);
                    return Ok(());
                }
            }
        }
    }

    /// Reads a page of which the log has nothing, and what follows it, if a file seems to be read
    /// from one end to the other.
    fn read_below<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        page: u64,
        out: &mut [u8; PAGE],
    ) -> Result<(), Error<B::Error>> {
        if self.clean.page(object, page, out) {
            return Ok(());
        }
        let ahead = self.ahead(below, object, page)?;
        let mut all = vec![[0; PAGE]; 1 + ahead];
        if ahead == 0 || below.read(object, page, all.as_flattened_mut()).is_err() {
            // What is wrong with a page that follows says nothing of this one.
            all.truncate(1);
            below.read(object, page, out).map_err(Error::Lower)?;
            all.fill(*out);
        }
        // A page that is about to lose its end is not kept: the layer below will say something else
        // of it.
        let cut = self.index.changed(object).and_then(Changed::cut).unwrap_or(u64::MAX);
        for (number, content) in (page..).zip(&all) {
            if number.saturating_add(1).saturating_mul(PAGE as u64) <= cut {
                self.clean.keep_page(object, number, content);
            }
        }
        if let Some(first) = all.first() {
            *out = *first;
        }
        Ok(())
    }

    /// How many pages behind a page are worth reading with it.
    fn ahead<B: Lower>(
        &mut self,
        below: &mut B,
        object: ObjectId,
        page: u64,
    ) -> Result<usize, Error<B::Error>> {
        let is_next = page.checked_sub(1).is_none_or(|last| self.clean.has_page(object, last));
        if !is_next || !self.clean.has_room_for(MOST_AHEAD) {
            return Ok(0);
        }
        let found = self.attributes_now(below, object)?;
        let Some(found) = found.filter(|found| found.class == Class::Data) else { return Ok(0) };
        let changed = self.index.changed(object);
        let is_unknown = |number: &u64| {
            let is_below = changed.is_none_or(|changed| {
                changed.is_below(*number) && !changed.pages.contains_key(number)
            });
            is_below && !self.clean.has_page(object, *number)
        };
        let pages = found.size.div_ceil(PAGE as u64);
        Ok((page.saturating_add(1)..pages).take(MOST_AHEAD).take_while(is_unknown).count())
    }

    /// How much room there is, without what is in the log can take.
    ///
    /// # Errors
    /// [`Error::Damaged`]; those of the layer below.
    pub fn room<B: Lower>(&mut self, below: &mut B) -> Result<Room, Error<B::Error>> {
        self.refresh()?;
        let owed = self.index.owed();
        let room = below.room().map_err(Error::Lower)?;
        let without = |blocks: u64| blocks.saturating_sub(owed.blocks);
        let (free, least) = (without(room.free), without(room.least));
        Ok(Room { free, least, credit: room.credit.without(owed), ..room })
    }
}
