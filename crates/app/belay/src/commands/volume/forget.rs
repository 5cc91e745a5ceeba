//! `belay volume forget`: the name goes, the data stay.

use crate::cli::volume::Forget;
use crate::messages::Out;
use anyhow::Result;
use belay_registry::Registry;
use belay_stack::{Place, memory};
use std::io::Write;

/// Runs it.
pub fn run(options: &Forget) -> Result<i32> {
    let registry = Registry::of_user()?;
    // What is damaged can be removed all the same.
    let known = registry.find(&options.name).ok();
    registry.remove(&options.name)?;
    writeln!(Out, "the name {} is removed", options.name)?;
    for store in known.iter().flat_map(|(definition, _)| &definition.stores) {
        let path = store.path.display();
        match store.path.exists() {
            true => writeln!(Out, "  its data are still on {path}")?,
            false => writeln!(Out, "  {path}, where its data were, is not there")?,
        }
    }
    // What cannot be found out is nobody's hindrance: the name is gone.
    let place = known.and_then(|(definition, _)| Place::find(definition.id.into_bytes()).ok()?);
    match place {
        Some(place) if place.is_held() => {
            writeln!(Out, "  it stays mounted until it is unmounted")?
        }
        Some(place) if memory::has_unsaved(&place) => writeln!(
            Out,
            "  what was written, and not brought there yet, is in {}: a mount under any name of a definition with the same id has it",
            place.memory().display()
        )?,
        // What is left there is small, and in nobody's way.
        Some(place) => drop(memory::clear(&place)),
        None => {}
    }
    Ok(0)
}
