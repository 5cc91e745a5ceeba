//! `belay volume forget`: the name goes, the data stay.

use crate::cli::volume::Forget;
use crate::messages::Out;
use anyhow::Result;
use belay_registry::Registry;
use std::io::Write;

/// Runs it.
pub fn run(options: &Forget) -> Result<i32> {
    let registry = Registry::of_user()?;
    // What is damaged can be removed all the same.
    let known = registry.find(&options.name).ok();
    registry.remove(&options.name)?;
    writeln!(Out, "the name {} is removed", options.name)?;
    for store in known.iter().flat_map(|(definition, _)| &definition.stores) {
        writeln!(Out, "  its data are still on {}", store.path.display())?;
    }
    Ok(0)
}
