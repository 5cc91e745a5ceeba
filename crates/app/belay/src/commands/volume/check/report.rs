//! What a check of a volume has found, for people and as JSON.

use super::super::open::Named;
use anyhow::Result;
use belay_object::ObjectId;
use belay_posix::check;
use belay_registry::VolumeName;
use belay_stack::Place;
use belay_stack::memory::{self, Leftover};
use belay_supervisor::text::{OsText, bytes, count, counted, escaped};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// On which store, if on one.
    pub store: Option<usize>,
    /// In which object, if in one.
    pub object: Option<ObjectId>,
    /// By which path that is reached.
    pub path: Option<Vec<u8>>,
    /// What it is.
    pub what: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    pub checkpoint: u64,
    pub files: u64,
    pub directories: u64,
    pub orphans: u64,
    /// Bytes that the next mount replays.
    pub waiting: u64,
    /// What was synced cannot be read.
    pub is_log_damaged: bool,
    /// The memory of a mount that has not ended as it should: the next one goes on with it, and
    /// replays nothing.
    pub memory: Option<PathBuf>,
    /// Where the volume is mounted, from other stores than these.
    pub mounted: Option<PathBuf>,
    pub stores: Vec<belay_store::check::Report>,
    pub findings: Vec<Finding>,
    pub unlisted: u64,
    /// What is worth telling of a store, and not wrong.
    pub notes: Vec<(usize, String)>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.unlisted == 0
    }

    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// What a mount has left in memory, if the stores are at that checkpoint, which reaches up to a
    /// transaction.
    pub fn memory(&mut self, place: &Place, epoch: u64, upto: u64) {
        let path = place.memory();
        if place.is_held() {
            self.mounted = Some(place.path().to_owned());
            return;
        }
        let what = match memory::left(place, epoch, upto) {
            Leftover::Nothing => return,
            Leftover::Unsaved(_) => {
                self.memory = Some(path);
                return;
            }
            Leftover::Stale => format!(
                "what was written to it before its last end is in {}, and the stores were changed since without that, or older copies of \
                 them were put back: it is not mounted until that file is removed, or the right stores are here",
                path.display()
            ),
            Leftover::Damaged(why) => format!(
                "data that was written before it ended last cannot be read, so it cannot be mounted: {why}"
            ),
        };
        self.add(Finding { store: None, object: None, path: None, what });
    }

    /// What the check of the names has found.
    pub fn take(&mut self, names: check::Report, when: &str) {
        self.unlisted += names.unlisted;
        for check::Finding { object, path, what } in names.findings {
            self.add(Finding { store: None, object, path, what: format!("{when}{what}") });
        }
    }

    /// Files and directories in which something is wrong.
    fn harmed(&self) -> u64 {
        let paths = self.findings.iter().filter_map(|one| one.path.as_ref());
        paths.collect::<BTreeSet<_>>().len() as u64
    }

    pub fn render(&self, named: &Named) -> String {
        let mut out = String::new();
        // A string takes everything.
        let _ = self.write(named, &mut out);
        out
    }

    fn write(&self, named: &Named, out: &mut String) -> std::fmt::Result {
        let name = &named.name;
        for finding in &self.findings {
            let store = finding.store.map(|store| named.store_path(store));
            let place = match (&finding.path, finding.object, store) {
                (Some(path), ..) => escaped(OsText::from_bytes(path).as_path().as_os_str()),
                (None, Some(object), _) if object.0 >= belay_posix::FIRST => object.to_string(),
                (None, _, Some(store)) => store,
                (None, ..) => name.to_string(),
            };
            writeln!(out, "damaged: {place}: {}", finding.what)?;
        }
        if self.unlisted > 0 {
            writeln!(out, "damaged: and {} more", self.unlisted)?;
        }
        for (store, note) in &self.notes {
            writeln!(out, "note: {}: {note}", named.store_path(*store))?;
        }
        if let Some(memory) = &self.memory {
            writeln!(
                out,
                "{name} was not unmounted: what was written since that checkpoint is in {}, and is there at the next mount",
                memory.display()
            )?;
        } else if self.waiting > 0 {
            let waiting = bytes(self.waiting);
            writeln!(
                out,
                "{name} was not unmounted: {waiting} of intents are replayed at the next mount"
            )?;
        }
        if let Some(place) = &self.mounted {
            writeln!(
                out,
                "{name} is mounted from other stores, copies of which these are, or the other way round ({}): these are not mounted \
                 meanwhile",
                place.display()
            )?;
        }
        if self.is_log_damaged {
            writeln!(
                out,
                "next: wait if the disk may be readable again, or give up what was synced and is lost with `belay volume cut-log {name}`"
            )?;
        }
        if self.orphans > 0 {
            let files = counted(self.orphans, "file that was", "files that were");
            writeln!(out, "{files} removed while in use: the next mount sees to that")?;
        }
        let (files, directories) =
            (count(self.files, "file"), counted(self.directories, "directory", "directories"));
        let data: u64 = self.stores.iter().map(|one| one.data_blocks).sum();
        let read = bytes(data.saturating_mul(4096));
        if self.is_clean() {
            return writeln!(out, "{name} is clean: {files}, {directories}, {read} of data");
        }
        let all = self.files + self.directories;
        let harmed = self.harmed();
        writeln!(
            out,
            "{name} is damaged: {} in {}; the other {} files and directories whose names can be read are unharmed",
            counted(self.findings.len() as u64 + self.unlisted, "finding", "findings"),
            counted(harmed, "file or directory", "files and directories"),
            all.saturating_sub(harmed)
        )
    }
}

/// As JSON.
pub fn to_json(name: &VolumeName, named: Option<&Named>, found: &Result<Report>) -> Value {
    let report = found.as_ref().ok();
    let state = match report {
        None => "unchecked",
        Some(report) if report.is_clean() => "clean",
        Some(_) => "damaged",
    };
    let path = |store: usize| named.map(|named| named.store_path(store));
    let finding = |finding: &Finding| {
        let path_text = finding.path.as_ref().map(|path| OsText::from_bytes(path));
        json!({
            "path": path_text.as_ref().map(OsText::show),
            "path_bytes": path_text.as_ref().and_then(OsText::odd_bytes),
            "object": finding.object.map(|object| object.0),
            "store": finding.store.and_then(path),
            "what": finding.what,
        })
    };
    let store = |(number, store): (usize, &belay_store::check::Report)| {
        let definition = named.and_then(|named| named.definition.stores.get(number));
        json!({
            "path": path(number),
            "id": definition.map(|store| store.id),
            "files": store.files,
            "data_blocks": store.data_blocks,
            "metadata_blocks": store.metadata_blocks,
        })
    };
    let list = |report: &Report| report.stores.iter().enumerate().map(store).collect::<Vec<_>>();
    let note = |(store, note): &(usize, String)| json!({ "store": path(*store), "what": note });
    json!({
        "schema_version": SCHEMA_VERSION,
        "volume": name.as_str(),
        "id": named.map(|named| named.definition.id),
        "state": state,
        "error": found.as_ref().err().map(|why| format!("{why:#}")),
        "checkpoint": report.map(|report| report.checkpoint),
        "files": report.map(|report| report.files),
        "directories": report.map(|report| report.directories),
        "harmed": report.map(Report::harmed),
        "stores": report.map(list),
        "waiting_bytes": report.map(|report| report.waiting),
        "memory": report.and_then(|report| report.memory.as_ref()).map(|path| path.display().to_string()),
        "orphans": report.map(|report| report.orphans),
        "findings": report.map(|report| report.findings.iter().map(finding).collect::<Vec<_>>()),
        "findings_unlisted": report.map(|report| report.unlisted),
        "notes": report.map(|report| report.notes.iter().map(note).collect::<Vec<_>>()),
    })
}
