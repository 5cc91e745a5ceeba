//! A request in one line of text, for crash reports.
//!
//! The line names the request, the node, the caller and the arguments. Names are quoted, and
//! whatever is not printable text in them is escaped, so the line stays one line on any terminal;
//! long names are cut. File data, attribute values and ioctl input appear only as lengths.

use std::fmt::Write;

use crate::abi::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn,
    FsyncIn, GETATTR_FH, GetattrIn, GetxattrIn, InitIn, InterruptIn, IoctlIn, LK_FLOCK, LinkIn,
    LkIn, LseekIn, MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, POLL_SCHEDULE_NOTIFY, PollIn,
    ReadIn, ReleaseIn, RemovemappingIn, Rename2In, RenameIn, SetattrIn, SetattrValid,
    SetupmappingIn, SetxattrInShort, StatxIn, WRITE_CACHE, WriteIn,
};
use crate::opcode::Opcode;
use crate::request::Request;
use crate::unique::Unique;

/// Most bytes of one name that are shown.
const SHOWN: usize = 512;

/// Bytes as quoted text: printable UTF-8 as it is, all else escaped, cut after 512 bytes.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    let (shown, cut) = bytes.split_at_checked(SHOWN).unwrap_or((bytes, &[]));
    let mut text = String::from("\"");
    for chunk in shown.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' => text.push(c),
                _ => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text.push('"');
    if !cut.is_empty() {
        let _ = write!(text, " and {} more bytes", cut.len());
    }
    text
}

/// One line about a request, at most a few kilobytes long. A body that is too short for its opcode
/// is said to be so; nothing of it is guessed.
#[must_use]
pub fn describe(request: &Request<'_>) -> String {
    let h = &request.header;
    let mut line = format!(
        "{} unique={}{} node={} uid={} gid={} pid={}",
        request.opcode(),
        Unique::unmarked(h.unique),
        if request.is_resent() { " (resent)" } else { "" },
        h.nodeid,
        h.uid,
        h.gid,
        h.pid
    );
    match arguments(request) {
        Some(text) if text.is_empty() => {}
        Some(text) => {
            line.push_str(": ");
            line.push_str(&text);
        }
        None => {
            let _ = write!(line, ": malformed, body of {} bytes", request.body.len());
        }
    }
    line
}

/// The same of a request of which these are on record: its numbers, user, group and process, and
/// its body.
pub fn describe_parts(opcode: u32, [unique, node]: [u64; 2], who: [u32; 3], body: &[u8]) -> String {
    let length = body.len().saturating_add(40);
    let mut message = Vec::with_capacity(length);
    message.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(opcode.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(node.to_ne_bytes());
    for word in who.into_iter().chain([0]) {
        message.extend(word.to_ne_bytes());
    }
    message.extend(body);
    match Request::parse(&message) {
        Ok(parsed) => describe(&parsed),
        Err(_) => format!("{} unique={unique}", Opcode(opcode)),
    }
}

/// What is particular to the opcode; `None` if the body is too short for it.
fn arguments(r: &Request<'_>) -> Option<String> {
    Some(match r.opcode() {
        Opcode::LOOKUP | Opcode::UNLINK | Opcode::RMDIR | Opcode::REMOVEXATTR => {
            format!("name={}", first(r)?)
        }
        Opcode::SYMLINK => format!("name={} target={}", first(r)?, second(r)?),
        Opcode::MKNOD => {
            let b: MknodIn = r.body_as()?;
            format!("name={} mode={:#o} rdev={:#x} umask={:#o}", first(r)?, b.mode, b.rdev, b.umask)
        }
        Opcode::MKDIR => {
            let b: MkdirIn = r.body_as()?;
            format!("name={} mode={:#o} umask={:#o}", first(r)?, b.mode, b.umask)
        }
        Opcode::RENAME => {
            let b: RenameIn = r.body_as()?;
            format!("name={} to node={} name={}", first(r)?, b.newdir, second(r)?)
        }
        Opcode::RENAME2 => {
            let b: Rename2In = r.body_as()?;
            format!(
                "name={} to node={} name={} flags={:#x}",
                first(r)?,
                b.newdir,
                second(r)?,
                b.flags
            )
        }
        Opcode::LINK => {
            let b: LinkIn = r.body_as()?;
            format!("name={} of node={}", first(r)?, b.oldnodeid)
        }
        Opcode::CREATE | Opcode::TMPFILE => {
            let b: CreateIn = r.body_as()?;
            format!(
                "name={} flags={:#x} mode={:#o} umask={:#o}",
                first(r)?,
                b.flags,
                b.mode,
                b.umask
            )
        }
        Opcode::SETXATTR => {
            let b: SetxattrInShort = r.body_as()?;
            format!("name={} flags={:#x} value of {} bytes", first(r)?, b.flags, b.size)
        }
        Opcode::GETXATTR => {
            let b: GetxattrIn = r.body_as()?;
            format!("name={} size={}", first(r)?, b.size)
        }
        Opcode::LISTXATTR => format!("size={}", r.body_as::<GetxattrIn>()?.size),
        Opcode::FORGET => format!("nlookup={}", r.body_as::<ForgetIn>()?.nlookup),
        Opcode::BATCH_FORGET => batch_forget(r)?,
        Opcode::GETATTR => {
            let b: GetattrIn = r.body_as()?;
            optional_handle(b.getattr_flags & GETATTR_FH != 0, b.fh)
        }
        Opcode::STATX => {
            let b: StatxIn = r.body_as()?;
            let mut text = format!("flags={:#x} mask={:#x}", b.sx_flags, b.sx_mask);
            if b.getattr_flags & GETATTR_FH != 0 {
                let _ = write!(text, " fh={}", b.fh);
            }
            text
        }
        Opcode::SETATTR => setattr(&r.body_as()?),
        Opcode::ACCESS => format!("mask={:#o}", r.body_as::<AccessIn>()?.mask),
        Opcode::INIT => {
            let b = InitIn::from_prefix(r.body)?;
            format!(
                "version={}.{} max_readahead={} flags={:#x}",
                b.major,
                b.minor,
                b.max_readahead,
                b.flags64().bits()
            )
        }
        Opcode::INTERRUPT => {
            let unique = r.body_as::<InterruptIn>()?.unique;
            format!("of unique={}", Unique::unmarked(unique))
        }
        Opcode::NOTIFY_REPLY => {
            let b: NotifyRetrieveIn = r.body_as()?;
            format!("offset={} data of {} bytes", b.offset, b.size)
        }
        Opcode::READLINK
        | Opcode::STATFS
        | Opcode::DESTROY
        | Opcode::SYNCFS
        | Opcode::CUSE_INIT => String::new(),
        _ => return file_arguments(r),
    })
}

/// The same for requests about open files.
fn file_arguments(r: &Request<'_>) -> Option<String> {
    Some(match r.opcode() {
        Opcode::OPEN | Opcode::OPENDIR => format!("flags={:#x}", r.body_as::<OpenIn>()?.flags),
        Opcode::READ | Opcode::READDIR | Opcode::READDIRPLUS => {
            let b: ReadIn = r.body_as()?;
            format!("fh={} offset={} size={}", b.fh, b.offset, b.size)
        }
        Opcode::WRITE => {
            let b: WriteIn = r.body_as()?;
            let cached = b.write_flags & WRITE_CACHE != 0;
            format!(
                "fh={} offset={} data of {} bytes{}",
                b.fh,
                b.offset,
                b.size,
                if cached { " from the page cache" } else { "" }
            )
        }
        Opcode::RELEASE | Opcode::RELEASEDIR => {
            let b: ReleaseIn = r.body_as()?;
            format!("fh={} flags={:#x} release_flags={:#x}", b.fh, b.flags, b.release_flags)
        }
        Opcode::FLUSH => {
            let b: FlushIn = r.body_as()?;
            format!("fh={} lock_owner={:#x}", b.fh, b.lock_owner)
        }
        Opcode::FSYNC | Opcode::FSYNCDIR => {
            let b: FsyncIn = r.body_as()?;
            format!("fh={} flags={:#x}", b.fh, b.fsync_flags)
        }
        Opcode::GETLK | Opcode::SETLK | Opcode::SETLKW => {
            let b: LkIn = r.body_as()?;
            format!(
                "fh={} owner={:#x} {} type={} range={}..={} pid={}",
                b.fh,
                b.owner,
                if b.lk_flags & LK_FLOCK != 0 { "flock" } else { "posix" },
                b.lk.type_,
                b.lk.start,
                b.lk.end,
                b.lk.pid
            )
        }
        Opcode::BMAP => {
            let b: BmapIn = r.body_as()?;
            format!("block={} blocksize={}", b.block, b.blocksize)
        }
        Opcode::IOCTL => {
            let b: IoctlIn = r.body_as()?;
            format!(
                "fh={} cmd={:#x} flags={:#x} input of {} bytes, room for {}",
                b.fh, b.cmd, b.flags, b.in_size, b.out_size
            )
        }
        Opcode::POLL => {
            let b: PollIn = r.body_as()?;
            let notify = b.flags & POLL_SCHEDULE_NOTIFY != 0;
            format!(
                "fh={} kh={} events={:#x}{}",
                b.fh,
                b.kh,
                b.events,
                if notify { " to be notified" } else { "" }
            )
        }
        Opcode::FALLOCATE => {
            let b: FallocateIn = r.body_as()?;
            format!("fh={} offset={} length={} mode={:#x}", b.fh, b.offset, b.length, b.mode)
        }
        Opcode::LSEEK => {
            let b: LseekIn = r.body_as()?;
            format!("fh={} offset={} whence={}", b.fh, b.offset, b.whence)
        }
        Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => {
            let b: CopyFileRangeIn = r.body_as()?;
            format!(
                "fh={} offset={} to node={} fh={} offset={} length={}",
                b.fh_in, b.off_in, b.nodeid_out, b.fh_out, b.off_out, b.len
            )
        }
        Opcode::SETUPMAPPING => {
            let b: SetupmappingIn = r.body_as()?;
            format!(
                "offset={} length={} flags={:#x} window={}",
                b.foffset, b.len, b.flags, b.moffset
            )
        }
        Opcode::REMOVEMAPPING => format!("count={}", r.body_as::<RemovemappingIn>()?.count),
        _ => format!("body of {} bytes", r.body.len()),
    })
}

fn first(r: &Request<'_>) -> Option<String> {
    r.names().first.map(quote)
}

fn second(r: &Request<'_>) -> Option<String> {
    r.names().second.map(quote)
}

fn optional_handle(given: bool, fh: u64) -> String {
    if given { format!("fh={fh}") } else { String::new() }
}

/// The count and the first few items.
fn batch_forget(r: &Request<'_>) -> Option<String> {
    const ITEMS: usize = 8;
    let mut text = format!("count={}", r.body_as::<BatchForgetIn>()?.count);
    let mut items = r.forgets();
    for (_, one) in items.by_ref().take(ITEMS) {
        let _ = write!(text, " node={} nlookup={}", one.nodeid, one.nlookup);
    }
    if items.next().is_some() {
        text.push_str(" ...");
    }
    Some(text)
}

/// Only the fields that are to be changed.
fn setattr(b: &SetattrIn) -> String {
    let on = |bit: SetattrValid| b.valid.intersects(bit);
    let mut parts = vec![format!("valid={:#x}", b.valid.bits())];
    if on(SetattrValid::MODE) {
        parts.push(format!("mode={:#o}", b.mode));
    }
    if on(SetattrValid::UID) {
        parts.push(format!("uid={}", b.uid));
    }
    if on(SetattrValid::GID) {
        parts.push(format!("gid={}", b.gid));
    }
    if on(SetattrValid::SIZE) {
        parts.push(format!("size={}", b.size));
    }
    for (bit, now, name, seconds, nanos) in [
        (SetattrValid::ATIME, SetattrValid::ATIME_NOW, "atime", b.atime, b.atimensec),
        (SetattrValid::MTIME, SetattrValid::MTIME_NOW, "mtime", b.mtime, b.mtimensec),
        (SetattrValid::CTIME, SetattrValid::empty(), "ctime", b.ctime, b.ctimensec),
    ] {
        if on(now) {
            parts.push(format!("{name}=now"));
        } else if on(bit) {
            parts.push(format!("{name}={seconds}.{nanos:09}"));
        }
    }
    if on(SetattrValid::FH) {
        parts.push(format!("fh={}", b.fh));
    }
    parts.join(" ")
}
