//! Answers, as the kernel reads them.

use crate::attributes::{Kind, Time};
use crate::directory::Entry;
use crate::namespace::{Node, Usage};
use belay_object::PAGE;
use belay_wire::abi::{Kstatfs, OpenOut, SetattrIn, SetattrValid};
use belay_wire::{Attr, AttrOut, EntryOut, OutHeader};
use zerocopy::{FromZeros, IntoBytes};

/// For how long the kernel need not ask again: nobody else changes anything, in seconds.
const VALID: u64 = 60;

/// A whole message: an answer with that body, or an error.
pub(super) fn message(unique: u64, errno: i32, body: &[u8]) -> Vec<u8> {
    let length = size_of::<OutHeader>() + body.len();
    let header = OutHeader { len: length as u32, error: -errno, unique };
    let mut message = Vec::with_capacity(length);
    message.extend_from_slice(header.as_bytes());
    message.extend_from_slice(body);
    message
}

fn attr(node: &Node) -> Attr {
    let metadata = &node.metadata;
    let mut attr = Attr::new_zeroed();
    attr.ino = node.object.0;
    attr.size = node.size;
    attr.blocks = node.size.div_ceil(PAGE as u64) * (PAGE as u64 / 512);
    (attr.atime, attr.atimensec) = split(metadata.accessed);
    (attr.mtime, attr.mtimensec) = split(metadata.modified);
    (attr.ctime, attr.ctimensec) = split(metadata.changed);
    attr.mode = metadata.mode;
    attr.nlink = metadata.links;
    (attr.uid, attr.gid) = (metadata.uid, metadata.gid);
    attr.rdev = if metadata.kind() == Kind::Special { metadata.device } else { 0 };
    attr.blksize = PAGE as u32;
    attr
}

fn split(time: Time) -> (u64, u32) {
    (time.seconds as u64, time.nanoseconds)
}

/// What a name leads to.
pub(super) fn entry(node: &Node) -> EntryOut {
    let mut entry = EntryOut::new_zeroed();
    entry.nodeid = node.object.0;
    entry.generation = u64::from(node.metadata.generation);
    (entry.entry_valid, entry.attr_valid) = (VALID, VALID);
    entry.attr = attr(node);
    entry
}

/// The same, as a body.
pub(super) fn entry_out(node: &Node) -> Vec<u8> {
    entry(node).as_bytes().to_vec()
}

/// The same of what is damaged. Its attributes hold for no time: whoever wants to know them, or to
/// open it, is told that they cannot be read. It can be removed.
pub(super) fn damaged_out(found: &Entry) -> Vec<u8> {
    let mut entry = EntryOut::new_zeroed();
    entry.nodeid = found.object.0;
    (entry.attr.ino, entry.attr.nlink) = (found.object.0, 1);
    entry.attr.mode = u32::from(found.kind) << 12;
    entry.attr.blksize = PAGE as u32;
    entry.as_bytes().to_vec()
}

/// The body of an answer to CREATE.
pub(super) fn create_out(node: &Node) -> Vec<u8> {
    let mut body = entry_out(node);
    body.extend_from_slice(OpenOut::new_zeroed().as_bytes());
    body
}

/// The body of an answer to GETATTR.
pub(super) fn attr_out(node: &Node) -> Vec<u8> {
    let mut out = AttrOut::new_zeroed();
    out.attr_valid = VALID;
    out.attr = attr(node);
    out.as_bytes().to_vec()
}

/// The body of an answer to STATFS.
pub(super) fn statfs_out(usage: &Usage) -> Vec<u8> {
    let mut out = Kstatfs::new_zeroed();
    out.blocks = usage.room.capacity;
    // What is free after the next checkpoint only is free: a writer who needs it waits for that.
    out.bfree = usage.room.free;
    out.bavail = usage.room.for_users();
    out.files = usage.files.saturating_add(usage.more);
    out.ffree = usage.more;
    out.bsize = PAGE as u32;
    out.frsize = PAGE as u32;
    out.namelen = crate::directory::NAME_MAX as u32;
    out.as_bytes().to_vec()
}

/// Which times a SETATTR sets.
pub(super) fn times(asked: &SetattrIn, now: Time) -> (Option<Time>, Option<Time>) {
    let one = |set: SetattrValid, to_now: SetattrValid, seconds: u64, nanoseconds: u32| {
        if asked.valid.contains(to_now) {
            Some(now)
        } else {
            let nanoseconds = nanoseconds.min(999_999_999);
            let time = Time { seconds: seconds as i64, nanoseconds };
            asked.valid.contains(set).then_some(time)
        }
    };
    (
        one(SetattrValid::ATIME, SetattrValid::ATIME_NOW, asked.atime, asked.atimensec),
        one(SetattrValid::MTIME, SetattrValid::MTIME_NOW, asked.mtime, asked.mtimensec),
    )
}
