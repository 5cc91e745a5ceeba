//! `belay volume check`: all of a volume is read, and what is wrong is told of the file that it is
//! in.

mod report;

use super::open::{Looked, Named};
use crate::cli::volume::Check;
use crate::messages::{Out, is_unheard, say};
use anyhow::Result;
use belay_cache::intent;
use belay_logical::{Error, Logical};
use belay_object::ObjectId;
use belay_posix::{IDS, ORPHANS, ROOT, SECRET, check};
use belay_stack::Place;
use belay_store::Error as Damage;
use indicatif::{ProgressBar, ProgressStyle};
use report::{Finding, Report};
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

/// The exit status if something is wrong, and if it could not be checked.
const DAMAGED: i32 = 1;
const UNCHECKED: i32 = 2;

/// Runs it.
pub fn run(options: &Check) -> Result<i32> {
    match checked(options) {
        // What cannot be told is not known to whoever asked.
        Err(why) if !is_unheard() => {
            say(&format!("belay: error: {why:#}\n"));
            Ok(UNCHECKED)
        }
        told => told,
    }
}

fn checked(options: &Check) -> Result<i32> {
    let mut named = None;
    let found = Named::find(&options.name).and_then(|found| {
        let found = named.insert(found);
        let mut logical = found.open()?;
        let (epoch, upto) = (logical.epoch().saturating_sub(1), logical.upto());
        let mut report = examine(&mut logical)?;
        if let Some(place) = Place::find(found.definition.id.into_bytes())? {
            report.memory(&place, epoch, upto);
        }
        Ok(report)
    });
    let mut out = Out;
    if options.json {
        let object = report::to_json(&options.name, named.as_ref(), &found);
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
    }
    match &found {
        Err(why) => {
            say(&format!("belay: error: {why:#}; it was not checked\n"));
            return Ok(UNCHECKED);
        }
        Ok(report) if !options.json => {
            if let Some(named) = &named {
                write!(out, "{}", report.render(named))?;
            }
        }
        Ok(_) => {}
    }
    Ok(match found.is_ok_and(|report| report.is_clean()) {
        true => 0,
        false => DAMAGED,
    })
}

/// How far it is, on a terminal.
fn bar(logical: &Logical<Looked>) -> ProgressBar {
    let used = logical.room().map_or(0, |room| room.capacity.saturating_sub(room.free));
    let bar = ProgressBar::new(used);
    let style = ProgressStyle::with_template("{spinner} {elapsed} {bar:40} {percent}% {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn examine(logical: &mut Logical<Looked>) -> Result<Report> {
    let bar = bar(logical);
    bar.set_message("reading all blocks");
    let found = logical.check(&mut |blocks| bar.inc(blocks))?;
    let mut report = Report {
        checkpoint: logical.epoch().saturating_sub(1),
        unlisted: found.unlisted,
        ..Report::default()
    };
    for (store, one) in found.stores.into_iter().enumerate() {
        report.notes.extend(one.notes.iter().map(|note| (store, note.clone())));
        report.stores.push(one);
    }
    let wanted: BTreeSet<ObjectId> = found.findings.iter().filter_map(|one| one.object).collect();
    bar.set_style(ProgressStyle::with_template("{spinner} {elapsed} {pos} {msg}")?);
    bar.set_position(0);
    bar.set_message("names looked at");
    let names = check::check(logical, &found.objects, &wanted, &mut |names| bar.inc(names));
    (report.files, report.directories) = (names.files, names.directories);
    report.orphans = names.orphans;
    for finding in found.findings {
        let path = finding.object.and_then(|object| names.paths.get(&object).cloned());
        let what = in_own(finding.object, finding.what);
        report.add(Finding { store: finding.store, object: finding.object, path, what });
    }
    report.take(names, "");
    replay(logical, &mut report, &bar);
    bar.finish_and_clear();
    Ok(report)
}

/// Does in memory what the next mount does, and looks at what comes of that.
fn replay(logical: &mut Logical<Looked>, report: &mut Report, bar: &ProgressBar) {
    let failed = |why: belay_cache::Error<belay_logical::Error>| {
        let what = format!("what was synced after the last checkpoint cannot be replayed: {why}");
        Finding { store: Some(0), object: None, path: None, what }
    };
    match intent::waiting(logical) {
        Ok(0) => return,
        Ok(bytes) => report.waiting = bytes,
        // The check of the store has said that.
        Err(belay_cache::Error::Lower(Error::Store { why: Damage::Intents { .. }, .. })) => {
            report.is_log_damaged = true;
            return;
        }
        Err(why) => return report.add(failed(why)),
    }
    bar.set_message("names looked at, after a replay");
    match intent::replay(logical) {
        Err(why) => report.add(failed(why)),
        // What was wrong before is wrong after it.
        Ok(_) if !report.is_clean() => {}
        Ok(_) => {
            let nothing = std::iter::empty();
            let mut progress = |names| bar.inc(names);
            let names = check::check(logical, nothing, &BTreeSet::new(), &mut progress);
            report.take(names, "after the replay: ");
        }
    }
}

/// What is wrong with an object that the volume keeps for itself has no path.
fn in_own(object: Option<ObjectId>, what: String) -> String {
    match object {
        Some(IDS) => format!("the list of the objects' numbers: {what}"),
        Some(ORPHANS) => format!("the list of files that were removed while in use: {what}"),
        Some(SECRET) => {
            format!("the secret of the names' hash, without which no name can be made: {what}")
        }
        Some(ROOT) => format!("the directory at the top: {what}"),
        _ => what,
    }
}
