//! `belay volume cut-log`: an intent log that is damaged ends before the damage from now on, so that the volume can be mounted.

use super::open::Named;
use crate::cli::volume::CutLog;
use crate::messages::Out;
use anyhow::{Context, Result};
use std::io::Write;

/// Runs it.
pub fn run(options: &CutLog) -> Result<i32> {
    let named = Named::find(&options.name)?;
    let mut logical = named.open_to_change()?;
    let cut = logical.cut_intents();
    let cut =
        cut.with_context(|| format!("the intent log of volume {} cannot be cut", named.name))?;
    if cut.is_none() {
        writeln!(Out, "the intent log of {} is whole: nothing was cut off", named.name)?;
    }
    if let Some(one) = cut {
        let path = named.store_path(0);
        writeln!(
            Out,
            "the intent log of {} on {path} ends before block {} now: {}",
            named.name, one.block, one.why
        )?;
    }
    Ok(0)
}
