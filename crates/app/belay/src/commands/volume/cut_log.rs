//! `belay volume cut-log`: an intent log that is damaged ends before the damage from now on, so
//! that the volume can be mounted. So does a volume whose last checkpoint is lost, though something
//! was synced after it.

use super::open::Named;
use crate::cli::volume::CutLog;
use crate::messages::Out;
use anyhow::{Context, Result};
use belay_store::root::{self, Next};
use std::io::Write;

/// Runs it.
pub fn run(options: &CutLog) -> Result<i32> {
    let named = Named::find(&options.name)?;
    for (store, disk, last) in named.disks_and_checkpoints()? {
        if root::next(&disk, &last) != Next::Lost {
            continue;
        }
        let path = store.path.display();
        root::give_up_next(&disk, &last)
            .with_context(|| format!("{path}: a lost checkpoint cannot be given up"))?;
        let (lost, last) = (last.epoch + 1, last.epoch);
        writeln!(
            Out,
            "checkpoint {lost} on {path} is given up: checkpoint {last} is now the last one"
        )?;
    }
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
