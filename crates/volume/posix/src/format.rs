//! How an empty namespace is made, on a volume that has just been made. Nobody else has it open
//! yet: a cache of this process alone does.

use crate::error::Result;
use crate::namespace::{Caller, Memo, Namespace};
use crate::secret::Secret;
use crate::view::View;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_object::Lower;
use belay_sys::Mapping;
use rustix::io::Errno;
use std::sync::Arc;

/// All that this takes, and some.
const CAPACITY: Capacity = Capacity { frames: 64, slots: 16 };

/// Makes an empty namespace, whose directory at the top belongs to the caller, and takes a
/// checkpoint of it.
///
/// # Errors
/// Those of the layer below, above all that it has no room.
pub fn format<B: Lower>(below: &mut B, caller: Caller, secret: Secret) -> Result<(), B::Error> {
    let layout = Layout::new(CAPACITY);
    let memory = Mapping::blank(layout.words * 8);
    let memory = memory.map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::NOMEM))?;
    let shared = Shared::new(Arc::new(memory), layout);
    let lower = |why| crate::Error::Cache(belay_cache::Error::Lower(why));
    let (epoch, first) = (below.epoch().map_err(lower)?, below.upto().map_err(lower)?);
    let room = below.room().map_err(lower)?;
    shared.initialize(epoch.saturating_sub(1), first, &room);
    let mut publisher = Publisher::attach::<B::Error>(shared.clone(), 1)?;
    let mut view = View::new(&mut publisher, below);
    Namespace::new(&mut view, caller, &mut Memo::default()).format(secret)?;
    view.commit(0, b"")?;
    Cleaner::new(shared).checkpoint(below)?;
    Ok(())
}
