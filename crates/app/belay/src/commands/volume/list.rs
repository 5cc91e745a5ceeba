//! `belay volume list`.

use crate::cli::volume::List;
use crate::messages::Out;
use anyhow::Result;
use belay_registry::{Listed, Registry, Store};
use belay_supervisor::text::bytes;
use rustix::fs::SeekFrom;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// Runs it.
pub fn run(options: &List) -> Result<i32> {
    let registry = Registry::of_user()?;
    let all = registry.list()?;
    let mut out = Out;
    if options.json {
        let volumes: Vec<Value> = all.iter().map(to_json).collect();
        let object = json!({ "schema_version": SCHEMA_VERSION, "volumes": volumes });
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
        return Ok(0);
    }
    if all.is_empty() {
        writeln!(
            out,
            "there is no volume ({}); make one with `belay volume create NAME --store PATH:SIZE`",
            registry.own().display()
        )?;
    }
    for Listed { name, path, definition } in &all {
        writeln!(out, "{name}  ({})", path.display())?;
        match definition {
            Ok(definition) => {
                for (number, store) in definition.stores.iter().enumerate() {
                    let size = size(&store.path);
                    let size = size.map_or_else(|| "missing".to_owned(), bytes);
                    writeln!(out, "  store {number}: {}, {size}", store.path.display())?;
                }
            }
            Err(why) => writeln!(out, "  error: {why}")?,
        }
    }
    Ok(0)
}

fn to_json(volume: &Listed) -> Value {
    let store = |store: &Store| {
        let Store { path, id } = store;
        json!({ "path": path, "id": id, "bytes": size(path) })
    };
    let definition = volume.definition.as_ref();
    json!({
        "name": volume.name.as_str(),
        "definition": volume.path.display().to_string(),
        "id": definition.ok().map(|definition| definition.id),
        "stores": definition.ok().map(|found| found.stores.iter().map(store).collect::<Vec<_>>()),
        "error": definition.err().map(ToString::to_string),
    })
}

/// How large a store is; `None` if it is not there. It is not locked for that: whoever mounts it at
/// this moment must not be refused.
fn size(path: &Path) -> Option<u64> {
    let found = path.metadata().ok()?;
    if !found.file_type().is_block_device() {
        return found.is_file().then_some(found.len());
    }
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let device = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    rustix::fs::seek(&device, SeekFrom::End(0)).ok()
}
