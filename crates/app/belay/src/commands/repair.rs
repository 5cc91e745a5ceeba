//! `belay repair`.

use crate::cli::Repair;
use crate::image_preparation::{Done, Journals};
use crate::messages::Out;
use anyhow::Result;
use belay_image::journal::{Contents, How, Recovered};
use belay_supervisor::instances;
use serde_json::{Value, json};
use std::io::Write;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;
/// Exit status of a dry run that has found something to do.
const TO_DO: i32 = 3;

/// Runs it.
pub fn run(options: &Repair) -> Result<i32> {
    let result = repair(options);
    let mut out = Out;
    if options.json {
        let journals = result.as_ref().map(Vec::as_slice).unwrap_or_default();
        let object = json!({
            "schema_version": SCHEMA_VERSION,
            "image": options.image.display().to_string(),
            "dry_run": options.dry_run,
            "journals": journals.iter().map(to_json).collect::<Vec<_>>(),
            "error": result.as_ref().err().map(|why| format!("{why:#}")),
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
    }
    let done = result?;
    if !options.json {
        for done in &done {
            writeln!(out, "{}", done.show(&options.image, options.dry_run))?;
        }
        if done.is_empty() {
            writeln!(out, "{}: no journal of belay, nothing to do", options.image.display())?;
        }
    }
    let is_left = done.iter().any(|done| done.what != Recovered::Nothing);
    Ok(if options.dry_run && is_left { TO_DO } else { 0 })
}

fn repair(options: &Repair) -> Result<Vec<Done>> {
    let how = How { force: options.force, discard: options.discard };
    let forget = options.discard && !options.dry_run;
    let journals = Journals::find(&options.image, options.journal.as_deref(), forget)?;
    journals.check_free(&instances::list(&options.state.path()))?;
    let _hold = journals.hold()?;
    if options.dry_run { journals.plan(how) } else { Ok(journals.settle(how)?.1) }
}

fn to_json(done: &Done) -> Value {
    let (what, contents) = match &done.what {
        Recovered::Nothing => ("nothing", None),
        Recovered::Dropped => ("dropped", None),
        Recovered::Discarded(contents) => ("discarded", Some(contents)),
        Recovered::Applied(contents) => ("applied", Some(contents)),
    };
    let number = |of: fn(&Contents) -> u64| contents.map(of);
    json!({
        "path": done.journal.display().to_string(),
        "done": what,
        "checkpoint": number(|contents| contents.epoch),
        "places": number(|contents| contents.runs),
        "bytes": number(|contents| contents.bytes),
    })
}
