//! What direct I/O puts back if what it has done cannot be made durable.

use super::Page;
use crate::error::Result;
use belay_cache::Publisher;
use belay_cache::publisher::Draft;
use belay_memory::Memory;
use belay_object::{ObjectId, Operation};

/// What an object was before a request.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) object: ObjectId,
    pub(super) attributes: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) pages: Vec<(u64, Box<Page>)>,
}

impl Before {
    /// Has a transaction make it that again.
    pub(super) fn put_back<M: Memory, L>(
        &self,
        publisher: &mut Publisher<M>,
        draft: &mut Draft,
    ) -> Result<(), L> {
        let object = self.object;
        // Who was told of an error is to find all of it as it was, also after a power failure.
        publisher.add(draft, &Operation::Keep { object });
        if let Some(attributes) = &self.attributes {
            publisher.add(draft, &Operation::SetAttributes { object, attributes });
        }
        write(publisher, draft, object, self.pages.iter().map(|(page, content)| (*page, content)))?;
        if let Some(size) = self.size {
            publisher.add(draft, &Operation::SetSize { object, size });
        }
        Ok(())
    }
}

/// Adds the writing of pages, those that follow one another together.
pub(super) fn write<'p, M: Memory, L>(
    publisher: &mut Publisher<M>,
    draft: &mut Draft,
    object: ObjectId,
    pages: impl Iterator<Item = (u64, &'p Box<Page>)>,
) -> Result<(), L> {
    let mut run: Vec<Page> = Vec::new();
    let mut first = 0;
    for (page, content) in pages {
        if page != first + run.len() as u64 && !run.is_empty() {
            publisher.write::<L>(draft, object, first, &run)?;
            run.clear();
        }
        if run.is_empty() {
            first = page;
        }
        run.push(**content);
    }
    if !run.is_empty() {
        publisher.write::<L>(draft, object, first, &run)?;
    }
    Ok(())
}
