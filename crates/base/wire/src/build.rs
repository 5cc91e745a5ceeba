//! Whole messages made from scratch: requests that belay asks a daemon on its own account, replies
//! it gives in a daemon's stead, notifications to the kernel.
//!
//! Every builder fills in the header's `len`. A name is taken as it is and gets its NUL here; the
//! caller sees to it that it holds none. A message beyond `u32::MAX` bytes cannot be expressed and
//! gets that `len`.

use zerocopy::IntoBytes;

use crate::abi::{
    BatchForgetIn, FlushIn, ForgetIn, ForgetOne, FsyncIn, GETATTR_FH, GetattrIn, GetxattrIn,
    InHeader, InitIn, LinkIn, LkIn, NotifyRetrieveOut, OpenIn, OutHeader, ROOT_ID, ReadIn,
    ReleaseIn, Rename2In, RenameIn, SetattrIn, notify as notify_codes,
};
use crate::opcode::Opcode;

/// Who asks, and about which node: the part of a request's header that a caller chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Names the request until its reply.
    pub unique: u64,
    /// The node it is about.
    pub nodeid: u64,
    /// User id of the caller.
    pub uid: u32,
    /// Group id of the caller.
    pub gid: u32,
    /// Process id of the caller.
    pub pid: u32,
}

const NUL: &[u8] = &[0];

/// A request of any kind; its body is the parts, one after the other.
#[must_use]
pub fn request(ids: Ids, opcode: Opcode, parts: &[&[u8]]) -> Vec<u8> {
    let header = InHeader {
        len: 0,
        opcode: opcode.0,
        unique: ids.unique,
        nodeid: ids.nodeid,
        uid: ids.uid,
        gid: ids.gid,
        pid: ids.pid,
        total_extlen: 0,
        padding: 0,
    };
    message(header.as_bytes(), parts)
}

/// Puts the length of a message with `more` bytes behind it into its first word, where requests and
/// replies have it.
pub fn set_length(message: &mut [u8], more: usize) {
    let len = u32::try_from(message.len().saturating_add(more)).unwrap_or(u32::MAX);
    if let Some(word) = message.first_chunk_mut() {
        *word = len.to_ne_bytes();
    }
}

/// Joins header and parts; puts the length into the first word, where both kinds of header have it.
fn message(header: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut out = header.to_vec();
    for part in parts {
        out.extend_from_slice(part);
    }
    set_length(&mut out, 0);
    out
}

/// INIT, in its long form.
#[must_use]
pub fn init(ids: Ids, init: &InitIn) -> Vec<u8> {
    request(ids, Opcode::INIT, &[init.as_bytes()])
}

/// LOOKUP of `name` in the directory `ids.nodeid`.
#[must_use]
pub fn lookup(ids: Ids, name: &[u8]) -> Vec<u8> {
    request(ids, Opcode::LOOKUP, &[name, NUL])
}

/// FORGET of `nlookup` references. There is no reply.
#[must_use]
pub fn forget(ids: Ids, nlookup: u64) -> Vec<u8> {
    request(ids, Opcode::FORGET, &[ForgetIn { nlookup }.as_bytes()])
}

/// BATCH_FORGET of one lookup of each of these nodes.
#[must_use]
pub fn batch_forget(ids: Ids, nodes: &[u64]) -> Vec<u8> {
    let head = BatchForgetIn { count: nodes.len() as u32, dummy: 0 };
    let all: Vec<ForgetOne> =
        nodes.iter().map(|nodeid| ForgetOne { nodeid: *nodeid, nlookup: 1 }).collect();
    request(ids, Opcode::BATCH_FORGET, &[head.as_bytes(), all.as_bytes()])
}

/// GETATTR, through an open handle if one is given.
#[must_use]
pub fn getattr(ids: Ids, fh: Option<u64>) -> Vec<u8> {
    let body = GetattrIn {
        getattr_flags: if fh.is_some() { GETATTR_FH } else { 0 },
        dummy: 0,
        fh: fh.unwrap_or(0),
    };
    request(ids, Opcode::GETATTR, &[body.as_bytes()])
}

/// SETATTR.
#[must_use]
pub fn setattr(ids: Ids, body: &SetattrIn) -> Vec<u8> {
    request(ids, Opcode::SETATTR, &[body.as_bytes()])
}

/// OPEN with `O_*` flags.
#[must_use]
pub fn open(ids: Ids, flags: u32) -> Vec<u8> {
    let body = OpenIn { flags, open_flags: 0 };
    request(ids, Opcode::OPEN, &[body.as_bytes()])
}

/// OPENDIR with `O_*` flags.
#[must_use]
pub fn opendir(ids: Ids, flags: u32) -> Vec<u8> {
    let body = OpenIn { flags, open_flags: 0 };
    request(ids, Opcode::OPENDIR, &[body.as_bytes()])
}

/// RELEASE, or RELEASEDIR if `dir`; `flags` are those of the open.
#[must_use]
pub fn release(ids: Ids, fh: u64, flags: u32, dir: bool) -> Vec<u8> {
    let opcode = if dir { Opcode::RELEASEDIR } else { Opcode::RELEASE };
    let body = ReleaseIn { fh, flags, ..ReleaseIn::default() };
    request(ids, opcode, &[body.as_bytes()])
}

/// FSYNCDIR of an open directory: its data and all that describes them.
#[must_use]
pub fn fsyncdir(ids: Ids, fh: u64) -> Vec<u8> {
    let body = FsyncIn { fh, ..FsyncIn::default() };
    request(ids, Opcode::FSYNCDIR, &[body.as_bytes()])
}

/// FLUSH, as it comes when a descriptor is closed.
#[must_use]
pub fn flush(ids: Ids, fh: u64) -> Vec<u8> {
    let body = FlushIn { fh, ..FlushIn::default() };
    request(ids, Opcode::FLUSH, &[body.as_bytes()])
}

/// READ of up to `size` bytes at file position `off`.
#[must_use]
pub fn read(ids: Ids, fh: u64, off: u64, size: u32) -> Vec<u8> {
    read_like(ids, Opcode::READ, fh, off, size)
}

/// READDIR of up to `size` bytes of records from the daemon's cookie `off`.
#[must_use]
pub fn readdir(ids: Ids, fh: u64, off: u64, size: u32) -> Vec<u8> {
    read_like(ids, Opcode::READDIR, fh, off, size)
}

/// READDIRPLUS of up to `size` bytes of records from the daemon's cookie `off`.
#[must_use]
pub fn readdirplus(ids: Ids, fh: u64, off: u64, size: u32) -> Vec<u8> {
    read_like(ids, Opcode::READDIRPLUS, fh, off, size)
}

fn read_like(ids: Ids, opcode: Opcode, fh: u64, offset: u64, size: u32) -> Vec<u8> {
    let body = ReadIn { fh, offset, size, ..ReadIn::default() };
    request(ids, opcode, &[body.as_bytes()])
}

/// UNLINK of `name` in the directory `ids.nodeid`.
#[must_use]
pub fn unlink(ids: Ids, name: &[u8]) -> Vec<u8> {
    request(ids, Opcode::UNLINK, &[name, NUL])
}

/// RMDIR of `name` in the directory `ids.nodeid`.
#[must_use]
pub fn rmdir(ids: Ids, name: &[u8]) -> Vec<u8> {
    request(ids, Opcode::RMDIR, &[name, NUL])
}

/// RENAME of `old` in the directory `ids.nodeid` to `new` in the directory `newdir`.
#[must_use]
pub fn rename(ids: Ids, newdir: u64, old: &[u8], new: &[u8]) -> Vec<u8> {
    let body = RenameIn { newdir };
    request(ids, Opcode::RENAME, &[body.as_bytes(), old, NUL, new, NUL])
}

/// RENAME2 of `old` in the directory `ids.nodeid` to `new` in `newdir`, with these flags.
#[must_use]
pub fn rename2(ids: Ids, newdir: u64, flags: u32, old: &[u8], new: &[u8]) -> Vec<u8> {
    let body = Rename2In { newdir, flags, padding: 0 };
    request(ids, Opcode::RENAME2, &[body.as_bytes(), old, NUL, new, NUL])
}

/// LINK of the node `oldnode` as `name` in the directory `ids.nodeid`.
#[must_use]
pub fn link(ids: Ids, oldnode: u64, name: &[u8]) -> Vec<u8> {
    let body = LinkIn { oldnodeid: oldnode };
    request(ids, Opcode::LINK, &[body.as_bytes(), name, NUL])
}

/// READLINK.
#[must_use]
pub fn readlink(ids: Ids) -> Vec<u8> {
    request(ids, Opcode::READLINK, &[])
}

/// GETXATTR of `name` into `size` bytes; 0 asks for the size.
#[must_use]
pub fn getxattr(ids: Ids, name: &[u8], size: u32) -> Vec<u8> {
    let body = GetxattrIn { size, padding: 0 };
    request(ids, Opcode::GETXATTR, &[body.as_bytes(), name, NUL])
}

/// REMOVEXATTR.
#[must_use]
pub fn removexattr(ids: Ids, name: &[u8]) -> Vec<u8> {
    request(ids, Opcode::REMOVEXATTR, &[name, NUL])
}

/// SETLK.
#[must_use]
pub fn setlk(ids: Ids, body: &LkIn) -> Vec<u8> {
    request(ids, Opcode::SETLK, &[body.as_bytes()])
}

/// A successful reply with a body.
#[must_use]
pub fn reply(unique: u64, body: &[u8]) -> Vec<u8> {
    out(0, unique, body)
}

/// A reply that fails with a positive errno.
///
/// A negative one is taken by its size; `i32::MIN` becomes `i32::MAX`.
#[must_use]
pub fn reply_error(unique: u64, errno: i32) -> Vec<u8> {
    out(errno.saturating_abs().saturating_neg(), unique, &[])
}

/// A successful reply without a body.
#[must_use]
pub fn reply_ok(unique: u64) -> Vec<u8> {
    out(0, unique, &[])
}

/// A notification with a code of [`notify`](mod@crate::abi::notify).
#[must_use]
pub fn notify(code: i32, body: &[u8]) -> Vec<u8> {
    out(code, 0, body)
}

/// `unique` of the NOTIFY_REPLY that the kernel sends back to a [`kick`]. The kernel's own count up
/// from 0 and have bits 0 and 63.
pub const KICK: u64 = crate::Unique::own(1 << 61).word();

/// A notification that makes the kernel wake one reader: it answers with a NOTIFY_REPLY whose
/// `unique` is [`KICK`] (fs/fuse/dev.c, fuse_notify_retrieve: nothing is retrieved at size 0).
/// `file` is the node of a regular file: of a directory some kernels retrieve nothing and say
/// EINVAL (seen on Linux 6.18.44). Without one it is the root, for the others.
#[must_use]
pub fn kick(file: Option<u64>) -> Vec<u8> {
    let body = NotifyRetrieveOut {
        notify_unique: KICK,
        nodeid: file.unwrap_or(ROOT_ID),
        offset: 0,
        size: 0,
        padding: 0,
    };
    notify(notify_codes::RETRIEVE, body.as_bytes())
}

fn out(error: i32, unique: u64, body: &[u8]) -> Vec<u8> {
    let header = OutHeader { len: 0, error, unique };
    message(header.as_bytes(), &[body])
}
