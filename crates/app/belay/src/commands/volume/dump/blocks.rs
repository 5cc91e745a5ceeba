//! A block by its role.

use super::super::open::Looked;
use super::show;
use anyhow::{Context, Result};
use belay_cache::appended::{Part, parts};
use belay_disk::Block;
use belay_logical::{Logical, mapping};
use belay_object::{Lower, ObjectId, Operation, Transaction};
use belay_posix::{IDS, Kind, Metadata, ORPHANS, SECRET, directory};
use belay_store::layout::{self, Group, INODES, Inode, MAGIC, Root};
use belay_store::roles::{Found, Role};
use belay_store::{FileId, Pointer, Store, intent, resync};
use serde_json::{Map, Value, json};

/// A block of a store that is open.
pub fn known(
    logical: &mut Logical<Looked>,
    number: usize,
    block: u64,
    content: &Block,
) -> Result<Value> {
    let mapping = logical.mapping_of(number);
    let store = logical.stores().nth(number).context("there is no such store")?;
    let found = store.role_of(block)?;
    let mut shown = Map::new();
    shown.insert("block".to_owned(), block.into());
    let (name, mut details) = role(store, &found, block, content);
    if let Role::Data { file, owner, number } = found.role {
        details = match mapping == Some(file) {
            true => of_mapping(number, content),
            false => of_object(logical, ObjectId(owner), content),
        };
    }
    shown.insert("is".to_owned(), name.into());
    let store = logical.stores().nth(number).context("there is no such store")?;
    shown.extend(pointed(store, &found, block, content));
    if let Value::Object(details) = details {
        shown.extend(details);
    }
    Ok(Value::Object(shown))
}

/// A block of a store that cannot be opened, by what it says of itself.
pub fn unknown(block: u64, content: &Block, why: &str) -> Value {
    let details = by_itself(content).unwrap_or_else(|| json!({ "bytes": show::lines(content) }));
    json!({ "block": block, "is": "not known", "error": why, "content": details })
}

/// What of a block's kinds says what it is.
fn by_itself(content: &Block) -> Option<Value> {
    if content.starts_with(&MAGIC) {
        let root: Root = layout::read(content, 0);
        return Some(json!({ "root": of_root(content, &root) }));
    }
    of_resynchronization(content).or_else(|| of_intents(content, None))
}

fn of_root(content: &Block, root: &Root) -> Value {
    let mut shown = show::root(root);
    let is_whole = layout::root_checksum(content).0 == root.checksum.get();
    if let Value::Object(fields) = &mut shown {
        fields.insert("matches_checksum".to_owned(), is_whole.into());
    }
    shown
}

/// What points to a block, and whether it is what that says.
fn pointed(
    store: &Store<Looked>,
    found: &Found,
    block: u64,
    content: &Block,
) -> Map<String, Value> {
    let mut shown = Map::new();
    let Some(pointer) = found.pointer.filter(|pointer| !pointer.is_null()) else { return shown };
    if let Some(twin) = found.twin(block) {
        shown.insert("twin".to_owned(), twin.into());
        shown.insert("current".to_owned(), found.is_current(block).into());
    }
    shown.insert("pointer".to_owned(), show::pointer(pointer));
    if found.is_current(block) {
        // The end of a file may be in it, which is cut off when the store is opened.
        let is = store.pending(block).unwrap_or(content);
        let is_whole = store.checksum_of(is) == pointer.checksum();
        shown.insert("matches_checksum".to_owned(), is_whole.into());
    }
    shown
}

/// The name of a role, and what a block of it holds.
fn role(store: &Store<Looked>, found: &Found, block: u64, content: &Block) -> (String, Value) {
    let hex = || json!({ "bytes": show::lines(content) });
    match found.role {
        Role::Reserved => ("never used".to_owned(), hex()),
        Role::Root { is_odd } => {
            let which = if is_odd { "odd" } else { "even" };
            let details = by_itself(content).unwrap_or_else(hex);
            (format!("the root of {which} checkpoints"), details)
        }
        Role::Index(index) => {
            let details = json!({ "groups": pointers(content, 0, index * 256) });
            (format!("index block {index}"), details)
        }
        Role::Group(group) => {
            let of: Group = layout::read(content, 0);
            let details = json!({
                "group": of.number.get().checked_sub(1),
                "free_blocks": of.free.get(),
                "bitmaps": pointers(content, 64, 0),
            });
            (format!("the block of group {group}"), details)
        }
        Role::Bitmap { group, number, first } => {
            let name = format!("bitmap block {number} of group {group}");
            (name, json!({ "first_block": first, "in_use": runs(content, first) }))
        }
        Role::Resynchronization(number) => {
            let details = of_resynchronization(content).unwrap_or_else(hex);
            (format!("block {number} of the resynchronization log"), details)
        }
        Role::Intents { area, number } => {
            let append = store.append_at(block);
            let details = of_intents(content, append.as_deref()).unwrap_or_else(hex);
            (format!("block {number} of area {area} of the intent log"), details)
        }
        Role::Inodes(first) => {
            let inode = |number: u64| -> Value {
                let inode: Inode = layout::read(content, number as usize * size_of::<Inode>());
                show::inode(first + number, &inode)
            };
            let all: Vec<Value> = (0..INODES).map(inode).collect();
            (format!("inodes from {first} on"), json!({ "inodes": all }))
        }
        Role::Indirect { file: None, first } => {
            let details = json!({ "pointers": pointers(content, 0, 0) });
            (format!("an indirect block of the inodes, from inode {first} on"), details)
        }
        Role::Indirect { file: Some(file), first } => {
            let details = json!({ "pointers": pointers(content, 0, 0) });
            (format!("an indirect block of file {file}, from block {first} of it on"), details)
        }
        Role::Data { file, owner, number } => {
            (format!("block {number} of file {file}, of object {owner}"), hex())
        }
        Role::Free => ("free".to_owned(), hex()),
        Role::Lost => {
            ("marked as in use, and nothing that can be read leads to it".to_owned(), hex())
        }
    }
}

fn pointers(content: &Block, from: usize, first: u64) -> Vec<Value> {
    let mut found = Vec::new();
    for (number, at) in (first..).zip((from..content.len()).step_by(Pointer::SIZE)) {
        let pointer = Pointer::read(content, at);
        if !pointer.is_null() {
            found.push(json!({ "number": number, "pointer": show::pointer(pointer) }));
        }
    }
    found
}

/// The runs of blocks that are marked as in use.
fn runs(content: &Block, first: u64) -> Vec<Value> {
    let (mut found, mut begin) = (Vec::new(), None);
    let bits = content.iter().flat_map(|byte| (0..8).map(move |bit| byte & (1 << bit) != 0));
    for (block, is_set) in (first..).zip(bits.chain([false])) {
        match (begin, is_set) {
            (None, true) => begin = Some(block),
            (Some(start), false) => {
                found.push(json!({ "from": start, "to": block - 1 }));
                begin = None;
            }
            _ => {}
        }
    }
    found
}

fn of_resynchronization(content: &Block) -> Option<Value> {
    let log = resync::decode(content)?;
    let record = |(file, number, checksum): &(FileId, u64, belay_store::Checksum)| json!({ "file": file.to_string(), "number": number, "checksum": show::sum(checksum.0) });
    let records: Vec<Value> = log.records.iter().map(record).collect();
    Some(json!({
        "checkpoint": log.epoch,
        "number": log.number,
        "matches_checksum": log.is_whole,
        "records": records,
    }))
}

/// `append`: what is appended from this block on, if an append begins there and is whole.
fn of_intents(content: &Block, append: Option<&[u8]>) -> Option<Value> {
    let log = intent::decode(content)?;
    let transactions = append.map(|append| {
        parts(append)
            .map(|part| match part {
                Ok(part) => transaction(&part),
                Err(why) => json!({ "error": why.to_string() }),
            })
            .collect::<Vec<Value>>()
    });
    Some(json!({
        "before": show::sum(log.before.0),
        "begins": log.begins,
        "bytes": log.bytes.len(),
        "checksum": show::sum(log.checksum.0),
        "matches_checksum": log.is_whole,
        "transactions": transactions,
    }))
}

fn transaction(part: &Part<'_>) -> Value {
    let operations: Vec<String> = match Transaction::decode(part.bytes.to_vec()) {
        Err(why) => vec![format!("no operation: {why}")],
        Ok(all) => all.operations().flatten().map(|one| operation(&one)).collect(),
    };
    json!({ "number": part.number, "data": part.is_data, "operations": operations })
}

fn operation(operation: &Operation<'_>) -> String {
    let object = operation.object();
    match operation {
        Operation::Create { class, .. } => format!("create {object} ({class:?})"),
        Operation::Delete { .. } => format!("delete {object}"),
        Operation::Write { page, data, .. } => {
            format!("write {} bytes from page {page} of {object} on", data.len())
        }
        Operation::Pages { page, frames, .. } => {
            format!("write {} pages from page {page} of {object} on", frames.len())
        }
        Operation::SetSize { size, .. } => format!("set the size of {object} to {size}"),
        Operation::Keep { .. } => format!("keep the data of {object}"),
        Operation::SetAttributes { .. } => format!("set the attributes of {object}"),
        Operation::Punch { page, count, .. } => {
            format!("punch {count} pages from page {page} of {object} on")
        }
    }
}

fn of_mapping(number: u64, content: &Block) -> Value {
    let one = |(object, store, file): (ObjectId, usize, FileId)| json!({ "object": object.0, "store": store, "file": file.to_string() });
    let all: Vec<Value> = mapping::decode(number, content).into_iter().map(one).collect();
    json!({ "mapping": all })
}

/// A page of an object, as what the namespace has there.
fn of_object(logical: &mut Logical<Looked>, object: ObjectId, content: &Block) -> Value {
    let hex = || json!({ "bytes": show::lines(content) });
    match object {
        IDS => {
            return json!({ "of": "the list of the objects' numbers", "taken": runs(content, 0) });
        }
        SECRET => {
            return json!({ "of": "the secret of the names' hash", "bytes": show::lines(content) });
        }
        _ => {}
    }
    let found = Lower::attributes(logical, object).ok().flatten();
    let metadata = found.and_then(|found| Metadata::from_bytes(&found.attributes));
    match metadata.map(|metadata| metadata.kind()) {
        Some(Kind::Directory) => {
            let of = if object == ORPHANS { "files removed while in use" } else { "a directory" };
            match directory::page(content) {
                Some(page) => json!({ "of": of, "page": of_page(page) }),
                None => {
                    json!({ "of": of, "error": "it makes no sense", "bytes": show::lines(content) })
                }
            }
        }
        _ => hex(),
    }
}

fn of_page(page: directory::Decoded) -> Value {
    match page {
        directory::Decoded::Names(names) => {
            let one = |entry: directory::Entry| {
                json!({
                    "key": show::sum(entry.key),
                    "object": entry.object.0,
                    "kind": entry.kind,
                    "name": String::from_utf8_lossy(&entry.name),
                })
            };
            json!({ "names": names.into_iter().map(one).collect::<Vec<_>>() })
        }
        directory::Decoded::Pages(pages) => {
            let one = |(key, page)| json!({ "from_key": show::sum(key), "page": page });
            json!({ "pages": pages.into_iter().map(one).collect::<Vec<_>>() })
        }
    }
}
