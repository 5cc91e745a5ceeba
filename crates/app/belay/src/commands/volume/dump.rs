//! `belay volume dump`: any block of a volume, as what it is (docs/volume-layout.md).

mod blocks;
mod show;

use super::open::{Looked, Named};
use crate::cli::volume::Dump;
use crate::messages::Out;
use anyhow::{Context, Result, bail};
use belay_disk::Disk;
use belay_logical::Logical;
use belay_object::ObjectId;
use belay_posix::Metadata;
use belay_registry::{Store, Uuid};
use belay_store::root::{self, Checkpoint};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;
/// Blocks of a file that are listed.
const MOST: usize = 1000;

/// Runs it.
pub fn run(options: &Dump) -> Result<i32> {
    let named = Named::find(&options.name)?;
    let what = &options.what;
    let asked = options.store.as_ref().map(|_| store(&named, options)).transpose()?;
    let mut shown = match (what.object, what.block) {
        (Some(object), _) => one_object(&mut named.open()?, ObjectId(object))?,
        (None, Some(block)) => one_block(&named, store(&named, options)?, block)?,
        (None, None) => match (what.root, what.file) {
            (true, _) => last_root(&named, store(&named, options)?)?,
            (false, Some(file)) => {
                let number = store(&named, options)?;
                one_file(&mut named.open()?, number, file)?
            }
            (false, None) => overview(&named, asked)?,
        },
    };
    let mut out = Out;
    if options.json {
        if let Value::Object(fields) = &mut shown {
            fields.insert("schema_version".to_owned(), SCHEMA_VERSION.into());
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?;
    } else {
        write!(out, "{}", show::text(&shown))?;
    }
    Ok(0)
}

/// The number of the store that is asked for.
fn store(named: &Named, options: &Dump) -> Result<usize> {
    let stores = &named.definition.stores;
    let Some(asked) = &options.store else { return Ok(0) };
    let path = Path::new(asked);
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let by_path = stores.iter().position(|store| store.path == path);
    let by_number = asked.parse().ok().filter(|number| *number < stores.len());
    by_path.or(by_number).with_context(|| {
        let last = stores.len().saturating_sub(1);
        format!(
            "the volume {} has no store {asked}: name one from 0 to {last}, or its path (`belay volume list`)",
            named.name
        )
    })
}

fn one(named: &Named, number: usize) -> Result<(&Store, Looked)> {
    let store = named.definition.stores.get(number).context("there is no such store")?;
    Ok((store, named.disk(store)?))
}

/// Of one store, or of all.
fn overview(named: &Named, asked: Option<usize>) -> Result<Value> {
    let mut stores = Vec::new();
    let all = 0..named.definition.stores.len();
    for number in all.filter(|number| asked.is_none_or(|asked| asked == *number)) {
        let (store, disk) = one(named, number)?;
        let mut found = json!({ "store": number, "path": store.path, "blocks": disk.blocks() });
        let more = match root::checkpoints(&disk) {
            Err(why) => json!({ "error": why.to_string() }),
            Ok(checkpoints) => {
                let checkpoints: Vec<Value> = checkpoints.iter().map(of_checkpoint).collect();
                json!({ "checkpoints": checkpoints })
            }
        };
        if let (Value::Object(found), Value::Object(more)) = (&mut found, more) {
            found.extend(more);
        }
        stores.push(found);
    }
    Ok(json!({
        "volume": named.name.as_str(),
        "id": named.definition.id,
        "stores": stores,
    }))
}

fn of_checkpoint(found: &Checkpoint) -> Value {
    let places = found.geometry.root_places(found.epoch);
    json!({
        "checkpoint": found.epoch,
        "root_blocks": places,
        "whole_copies": found.copies,
        "volume": Uuid::from_bytes(found.identity.volume),
        "store": Uuid::from_bytes(found.identity.store),
        "blocks": found.geometry.blocks,
        "groups": found.geometry.groups(),
        "blocks_of_a_group": found.geometry.parameters.group_blocks,
        "twin_offset": found.geometry.parameters.twin_offset,
    })
}

fn last_root(named: &Named, number: usize) -> Result<Value> {
    let (store, disk) = one(named, number)?;
    let found = root::checkpoints(&disk).with_context(|| store.path.display().to_string())?;
    let newest = found.first().context("there is no checkpoint")?;
    let [block, _] = newest.geometry.root_places(newest.epoch);
    drop(disk);
    one_block(named, number, block)
}

fn one_block(named: &Named, number: usize, block: u64) -> Result<Value> {
    let (store, disk) = one(named, number)?;
    let blocks = disk.blocks();
    if block >= blocks {
        bail!("{} has {blocks} blocks, from 0 on: there is no block {block}", store.path.display());
    }
    let mut content = belay_disk::ZEROS;
    disk.read(block, &mut content)
        .with_context(|| format!("cannot read block {block} of {}", store.path.display()))?;
    drop(disk);
    // What belongs to a volume that cannot be opened is shown by what it says of itself.
    match named.open() {
        Ok(mut logical) => blocks::known(&mut logical, number, block, &content),
        Err(why) => Ok(blocks::unknown(block, &content, &format!("{why:#}"))),
    }
}

fn one_file(logical: &mut Logical<Looked>, number: usize, file: u64) -> Result<Value> {
    let store = logical.stores().nth(number).context("there is no such store")?;
    let inode = store.inode_with(file)?;
    let inode = inode.with_context(|| format!("there is no inode {file}"))?;
    let mut shown = show::inode(file, &inode);
    let listed = match store.file_with(file)? {
        None => Vec::new(),
        Some(id) => store.places(id, MOST)?,
    };
    let listed: Vec<Value> = listed
        .into_iter()
        .map(|(number, pointer)| json!({ "number": number, "pointer": show::pointer(pointer) }))
        .collect();
    if let Value::Object(fields) = &mut shown {
        fields.insert("blocks_listed".to_owned(), listed.into());
    }
    Ok(shown)
}

fn one_object(logical: &mut Logical<Looked>, object: ObjectId) -> Result<Value> {
    let place = logical.place_of(object)?;
    let Some((store, file)) = place else { bail!("there is no {object}") };
    let attributes = logical.attributes(object)?;
    let metadata = Metadata::from_bytes(&attributes.attributes);
    let inode = file.number() & ((1 << 40) - 1);
    Ok(json!({
        "object": object.0,
        "store": store,
        "file": file.to_string(),
        "size": attributes.size,
        "metadata": metadata.as_ref().map(show::metadata),
        "inode": one_file(logical, store, inode)?,
    }))
}
