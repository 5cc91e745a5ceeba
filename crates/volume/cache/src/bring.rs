//! How what has happened to objects reaches the layer below: in a checkpoint.
//!
//! That is done after a crash of the layers below, and when a volume is mounted whose cache has
//! lost its memory: what has happened is from the log in that memory, or from the intent log, and
//! nothing else differs.
//!
//! All of it can be done again after it was cut off, be it that the layer below has a part of it
//! already.

use crate::changes::{Changed, Changes};
use crate::dropped::Dropped;
use crate::error::Error;
use crate::pool::Version;
use crate::shared::Shared;
use belay_memory::Memory;
use belay_object::{Lower, ObjectId, Operation, PAGE};

/// Who has the content of pages.
pub(crate) trait Pages<P> {
    /// Reads a page of an object; false if what is in that place does not match.
    fn read(&self, place: P, object: ObjectId, page: u64, out: &mut [u8; PAGE]) -> bool;
}

impl<M: Memory> Pages<Version> for Shared<M> {
    fn read(&self, place: Version, object: ObjectId, page: u64, out: &mut [u8; PAGE]) -> bool {
        self.read_page(place, object, page, out)
    }
}

/// Brings all of it to the layer below, and has it take a checkpoint of all transactions up to but
/// not including `upto`; gives its epoch. What comes to an object that is damaged for good is
/// dropped.
///
/// # Errors
/// [`Error::Damaged`]; those of the layer below, which must be opened again then.
pub(crate) fn checkpoint<B: Lower, P: Copy>(
    below: &mut B,
    changes: &Changes<P>,
    pages: &impl Pages<P>,
    upto: u64,
    dropped: &mut Dropped,
) -> Result<u64, Error<B::Error>> {
    for (object, changed) in changes.objects() {
        let done = bring(below, object, changed, pages);
        dropped.unless_damaged(below, object, done)?;
    }
    below.checkpoint(upto).map_err(Error::Lower)
}

/// Brings what has happened to an object to the layer below.
fn bring<B: Lower, P: Copy>(
    below: &mut B,
    object: ObjectId,
    changed: &Changed<P>,
    pages: &impl Pages<P>,
) -> Result<(), Error<B::Error>> {
    let replaced = changed.gone.is_some() || changed.made.is_some();
    // One that cannot be read can be removed.
    if replaced && !matches!(below.attributes(object), Ok(None)) {
        below.apply(&Operation::Delete { object }).map_err(Error::Lower)?;
    }
    let attributes = changed.attributes.as_ref().map(|(attributes, _)| attributes.as_slice());
    match changed.made {
        Some((class, _)) => {
            let attributes = attributes.unwrap_or_default();
            let create = Operation::Create { object, class, attributes };
            below.apply(&create).map_err(Error::Lower)?;
        }
        None if changed.gone.is_some() => return Ok(()),
        None => {
            if let Some(size) = changed.cut() {
                below.apply(&Operation::SetSize { object, size }).map_err(Error::Lower)?;
            }
            if let Some(attributes) = attributes {
                let set = Operation::SetAttributes { object, attributes };
                below.apply(&set).map_err(Error::Lower)?;
            }
        }
    }
    bring_pages(below, object, changed, pages)?;
    if let Some((size, _)) = changed.size {
        below.apply(&Operation::SetSize { object, size }).map_err(Error::Lower)?;
    }
    Ok(())
}

fn bring_pages<B: Lower, P: Copy>(
    below: &mut B,
    object: ObjectId,
    changed: &Changed<P>,
    pages: &impl Pages<P>,
) -> Result<(), Error<B::Error>> {
    /// Pages that are brought at once.
    const MOST: usize = 256;
    let mut together: Vec<u8> = Vec::new();
    let mut first = 0;
    let mut put = |first: u64, data: &[u8]| match data.is_empty() {
        true => Ok(()),
        false => below.apply(&Operation::Write { object, page: first, data }).map_err(Error::Lower),
    };
    // Runs of pages: the first one, and how many.
    let mut zeros: Vec<(u64, u64)> = Vec::new();
    for (&page, (found, _)) in &changed.pages {
        let Some(place) = *found else {
            match zeros.last_mut() {
                Some((first, count)) if *first + *count == page => *count += 1,
                _ => zeros.push((page, 1)),
            }
            continue;
        };
        let mut content = [0; PAGE];
        if !pages.read(place, object, page, &mut content) {
            return Err(Error::Damaged("a page does not match its checksum"));
        }
        let next = first + (together.len() / PAGE) as u64;
        if page != next || together.len() >= MOST * PAGE {
            put(first, &together)?;
            together.clear();
            first = page;
        }
        together.extend_from_slice(&content);
    }
    put(first, &together)?;
    for (page, count) in zeros {
        let punch = Operation::Punch { object, page, count };
        below.apply(&punch).map_err(Error::Lower)?;
    }
    Ok(())
}
