//! Parts of blocks as JSON, and JSON for people.

use belay_posix::{Metadata, Time};
use belay_registry::Uuid;
use belay_store::layout::{Inode, InodeFlags, Made, Root};
use belay_store::{FileId, Pointer};
use serde_json::{Value, json};
use std::fmt::Write;

/// A checksum.
pub fn sum(checksum: u64) -> Value {
    format!("{checksum:016x}").into()
}

/// A pointer; null if it leads to nothing.
pub fn pointer(pointer: Pointer) -> Value {
    if pointer.is_null() {
        return Value::Null;
    }
    if pointer.is_lost() {
        return json!({ "lost": true, "led_to_by": pointer.block() });
    }
    json!({
        "block": pointer.block(),
        "twinned": pointer.is_twinned(),
        "right": pointer.is_right(),
        "modified": pointer.is_modified(),
        "checksum": sum(pointer.checksum().0),
    })
}

/// A root.
pub fn root(root: &Root) -> Value {
    let made = Made::from_bits_retain(root.made.get());
    let indexes: Vec<Value> =
        root.indexes.iter().filter(|one| !one.is_null()).map(|one| pointer(*one)).collect();
    let count = (root.member_count.get() as usize).min(root.members.len());
    let members: Vec<Uuid> =
        root.members.iter().take(count).map(|one| Uuid::from_bytes(*one)).collect();
    let word = |at: usize| {
        let bytes = root.label.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u64::from_le_bytes(*bytes))
    };
    json!({
        "version": root.version.get(),
        "frees_at_once": made.contains(Made::FREES_AT_ONCE),
        "data_in_place": made.contains(Made::IN_PLACE),
        "volume": Uuid::from_bytes(root.volume),
        "store": Uuid::from_bytes(root.store),
        "blocks": root.blocks.get(),
        "blocks_of_a_group": root.group_blocks.get(),
        "twin_offset": root.twin_offset.get(),
        "checkpoint": root.epoch.get(),
        "previous": root.previous.get(),
        "previous_checksum": sum(root.previous_checksum.get()),
        "inodes": root.inodes.get(),
        "free_inode": root.free_inode.get().checked_sub(1),
        "free_blocks": root.free_blocks.get(),
        "inode_depth": root.inode_depth.get(),
        "inode_tree": pointer(root.inode_tree),
        "mapping_file": word(16).map(|number| FileId::from_number(number).to_string()),
        "transactions_up_to": word(24),
        "branch": word(32).map(sum),
        "resynchronization_log": { "first": root.log_first.get(), "blocks": root.log_blocks.get() },
        "intent_log": { "first": root.intent_first.get(), "blocks": root.intent_blocks.get() },
        "indexes": indexes,
        "members": members,
        "checksum": sum(root.checksum.get()),
    })
}

/// An inode.
pub fn inode(number: u64, inode: &Inode) -> Value {
    let flags = inode.flags();
    if !flags.contains(InodeFlags::USED) {
        return json!({
            "inode": number,
            "used": false,
            "generation": inode.generation.get(),
            "next_free": inode.next_free.get().checked_sub(1),
        });
    }
    let length = (inode.attributes_length.get() as usize).min(inode.attributes.len());
    let attributes = inode.attributes.get(..length).unwrap_or_default();
    json!({
        "inode": number,
        "used": true,
        "protected": flags.contains(InodeFlags::PROTECTED),
        "generation": inode.generation.get(),
        "object": inode.owner.get(),
        "size": inode.size.get(),
        "blocks": inode.blocks.get(),
        "depth": inode.depth.get(),
        "tree": pointer(inode.tree),
        "metadata": Metadata::from_bytes(attributes).as_ref().map(metadata),
        "attributes": hex(attributes),
    })
}

/// What the namespace keeps of a file.
pub fn metadata(of: &Metadata) -> Value {
    let time = |time: Time| format!("{}.{:09}", time.seconds, time.nanoseconds);
    json!({
        "mode": format!("{:o}", of.mode),
        "uid": of.uid,
        "gid": of.gid,
        "links": of.links,
        "device": of.device,
        "accessed": time(of.accessed),
        "modified": time(of.modified),
        "changed": time(of.changed),
        "made": time(of.made),
        "parent": of.parent.0,
        "names": of.entries,
        "extended_attributes": of.extended.0,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Bytes in lines, as `hexdump -C` has them, without those lines that are all zeros.
pub fn lines(bytes: &[u8]) -> Value {
    let mut lines = Vec::new();
    for (number, line) in
        bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0))
    {
        let shown: String = line
            .iter()
            .map(
                |byte| {
                    if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' }
                },
            )
            .collect();
        lines.push(format!("{:04x}  {}  {shown}", number * 16, hex(line)));
    }
    if lines.is_empty() { "all zeros".into() } else { lines.into() }
}

/// For people: a line for each value, further in for what is in another one.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    let Value::Object(fields) = value else { return out };
    let is_head = |name: &str| ["block", "is"].contains(&name);
    if let (Some(block), Some(Value::String(is))) = (fields.get("block"), fields.get("is")) {
        let _ = writeln!(out, "block {block}: {is}");
    }
    for (name, value) in fields.iter().filter(|(name, _)| !is_head(name)) {
        field(name, value, 0, &mut out);
    }
    out
}

fn field(name: &str, value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let name = name.replace('_', " ");
    match value {
        Value::Array(all) if all.iter().any(is_deep) => {
            for (number, one) in all.iter().enumerate() {
                let Value::Object(fields) = one else { continue };
                let _ = writeln!(out, "{indent}{name}, {number}:");
                fields.iter().for_each(|(name, value)| field(name, value, depth + 1, out));
            }
        }
        Value::Array(all) if all.iter().any(|one| one.is_object() || one.is_string()) => {
            let _ = writeln!(out, "{indent}{name}:");
            for one in all {
                let _ = writeln!(out, "{indent}  {}", flat(one));
            }
        }
        Value::Object(fields) if is_deep(value) => {
            let _ = writeln!(out, "{indent}{name}:");
            fields.iter().for_each(|(name, value)| field(name, value, depth + 1, out));
        }
        value => {
            let _ = writeln!(out, "{indent}{name}: {}", flat(value));
        }
    }
}

/// Whether it takes more than a line.
fn is_deep(value: &Value) -> bool {
    let is_long = |value: &Value| match value {
        Value::Array(all) => all.iter().any(|one| one.is_object() || one.is_string()),
        Value::Object(fields) => fields.values().any(|one| one.is_object() || one.is_array()),
        _ => false,
    };
    value.as_object().is_some_and(|fields| fields.values().any(is_long))
}

/// On one line.
fn flat(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::Array(all) => all.iter().map(flat).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let one = |(name, value): (&String, &Value)| {
                let value = match value {
                    Value::Object(_) => format!("({})", flat(value)),
                    value => flat(value),
                };
                format!("{} {value}", name.replace('_', " "))
            };
            fields.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        value => value.to_string(),
    }
}
