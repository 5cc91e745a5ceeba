//! Records as operations on paths, so that they can be carried out by anybody who has the file
//! system mounted.

use crate::log::Oplog;
use crate::namespace::Namespace;
use crate::record::{Corrupt, Facts};
use crate::replay::{Issue, Replay, Run};
use belay_memory::Memory;
use belay_wire::abi::{
    CopyFileRangeIn, CreateIn, FallocateIn, InHeader, LinkIn, MkdirIn, MknodIn, NAME_MAX,
    Rename2In, RenameIn, SetattrIn, SetattrValid, SetxattrInShort,
};
use belay_wire::request::O_TRUNC;
use belay_wire::{Opcode, Request};
use serde::{Deserialize, Serialize};

/// The most data in one operation, in bytes.
const MOST: usize = 1 << 20;
/// The longest path.
const PATH_MAX: usize = 1 << 20;

/// Bytes that are a name, a path below the mount's root, or a link's target: in JSON a string if
/// that is UTF-8, else an array of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct Text(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<Form> for Text {
    fn from(form: Form) -> Self {
        match form {
            Form::Utf8(text) => Self(text.into_bytes()),
            Form::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<Text> for Form {
    fn from(text: Text) -> Self {
        String::from_utf8(text.0).map_or_else(|bytes| Self::Bytes(bytes.into_bytes()), Self::Utf8)
    }
}

impl Text {
    /// For people: nothing in it can play tricks on a terminal.
    pub fn show(&self) -> String {
        String::from_utf8_lossy(&self.0).escape_debug().to_string()
    }

    /// The path's names; none for the root.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Whether it is a path that stays below where it begins, as far as its names tell.
    fn is_path(&self) -> bool {
        let good = |name: &[u8]| {
            !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX && !name.contains(&0)
        };
        self.0.is_empty()
            || (self.0.len() <= PATH_MAX && self.0.split(|byte| *byte == b'/').all(good))
    }

    fn is_named(&self) -> bool {
        !self.0.is_empty() && self.is_path()
    }
}

/// A point in time, in nanoseconds since 1970.
pub type Nanoseconds = i128;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is what the system call of that name takes")]
pub enum Operation {
    /// open(2) with O_CREAT.
    Create { path: Text, mode: u32, truncate: bool },
    /// mkdir(2).
    Mkdir { path: Text, mode: u32 },
    /// mknod(2).
    Mknod { path: Text, mode: u32, device: u32 },
    /// symlink(2).
    Symlink { path: Text, target: Text },
    /// link(2).
    Link { from: Text, path: Text },
    /// unlink(2).
    Unlink { path: Text },
    /// rmdir(2).
    Rmdir { path: Text },
    /// renameat2(2).
    Rename { from: Text, path: Text, flags: u32 },
    /// pwrite(2) of the data.
    Write { path: Text, offset: u64 },
    /// chmod(2), chown(2), truncate(2), utimensat(2): what is there.
    Change {
        path: Text,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<Nanoseconds>,
        mtime: Option<Nanoseconds>,
    },
    /// setxattr(2) of the data.
    SetXattr { path: Text, name: Text, flags: u32 },
    /// removexattr(2).
    RemoveXattr { path: Text, name: Text },
    /// fallocate(2).
    Allocate { path: Text, mode: u32, offset: u64, length: u64 },
    /// copy_file_range(2).
    Copy { from: Text, from_offset: u64, path: Text, offset: u64, length: u64 },
    /// Something of which it is not known where it was, or what.
    Unknown { what: String },
}

impl Operation {
    /// What the system call is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Mkdir { .. } => "mkdir",
            Self::Mknod { .. } => "mknod",
            Self::Symlink { .. } => "symlink",
            Self::Link { .. } => "link",
            Self::Unlink { .. } => "unlink",
            Self::Rmdir { .. } => "rmdir",
            Self::Rename { .. } => "rename",
            Self::Write { .. } => "write",
            Self::Change { .. } => "change",
            Self::SetXattr { .. } => "setxattr",
            Self::RemoveXattr { .. } => "removexattr",
            Self::Allocate { .. } => "fallocate",
            Self::Copy { .. } => "copy",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// The paths that it is about: where to, and where from.
    pub fn paths(&self) -> (Option<&Text>, Option<&Text>) {
        match self {
            Self::Create { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Mknod { path, .. }
            | Self::Symlink { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path }
            | Self::Write { path, .. }
            | Self::Change { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Allocate { path, .. } => (Some(path), None),
            Self::Link { from, path }
            | Self::Rename { from, path, .. }
            | Self::Copy { from, path, .. } => (Some(path), Some(from)),
            Self::Unknown { .. } => (None, None),
        }
    }

    /// Whether nothing in it leads out of the mount.
    pub(super) fn is_sound(&self) -> bool {
        let (path, from) = self.paths();
        match self {
            // Of the root as well.
            Self::Change { path, .. } => path.is_path(),
            Self::SetXattr { path, name, .. } | Self::RemoveXattr { path, name } => {
                path.is_path() && !name.0.is_empty() && !name.0.contains(&0)
            }
            Self::Symlink { path, target } => path.is_named() && !target.0.contains(&0),
            _ => [path, from].into_iter().flatten().all(Text::is_named),
        }
    }
}

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The record's number in the op-log.
    pub record: u64,
    /// When it was done first, in nanoseconds since 1970.
    pub time: u64,
    /// Who did it.
    pub uid: u32,
    /// Who did it.
    pub gid: u32,
    /// What.
    pub operation: Operation,
    /// The data of a write or an attribute.
    #[serde(skip)]
    pub data: Vec<u8>,
}

/// All that `log` has, in order. `root`: the key of the mount's root.
///
/// # Errors
/// If the log is damaged.
pub fn steps<M: Memory>(log: &Oplog<M>, root: u64) -> Result<Vec<Step>, Corrupt> {
    let mut names = Namespace::at_checkpoint(log)?;
    let mut replay = Replay::new(MOST);
    let mut steps = Vec::new();
    while let Some(issue) = replay.next(log)? {
        steps_of(&issue, &Paths { names: &names, root }, &mut steps);
        names.forward(&issue.record.names);
    }
    Ok(steps)
}

/// Where nodes are, at one point of the log.
struct Paths<'a> {
    names: &'a Namespace,
    root: u64,
}

impl Paths<'_> {
    fn of(&self, key: u64) -> Option<Text> {
        let nothing = |_: u64| Vec::new();
        let links = self.names.path(self.root, key, &nothing)?;
        let names: Vec<Vec<u8>> = links.into_iter().map(|link| link.name).collect();
        Some(Text(names.join(&b'/')))
    }

    fn below(&self, key: u64, name: &[u8]) -> Option<Text> {
        let Text(mut path) = self.of(key)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Some(Text(path))
    }
}

fn steps_of(issue: &Issue, paths: &Paths<'_>, steps: &mut Vec<Step>) {
    let facts = &issue.record.facts;
    if facts.opcode == 0 {
        return; // it only says where nodes are
    }
    let header = InHeader { opcode: facts.opcode, nodeid: facts.node, ..InHeader::default() };
    let request = Request { header, body: &issue.record.body };
    let mut push = |operation: Option<Operation>, data: &[u8]| {
        let known = operation.filter(Operation::is_sound);
        let operation = known.unwrap_or_else(|| Operation::Unknown { what: request.describe() });
        let (record, data) = (issue.number as u64, data.to_vec());
        let (time, uid, gid) = (facts.time, facts.uid, facts.gid);
        steps.push(Step { record, time, uid, gid, operation, data });
    };
    if request.opcode() == Opcode::WRITE {
        let path = paths.of(facts.node);
        for Run { offset, bytes } in &issue.data {
            let write = path.clone().map(|path| Operation::Write { path, offset: *offset });
            push(write, bytes);
        }
        return;
    }
    let operation = operation_of(&request, facts, paths);
    push(operation, request.xattr_value().unwrap_or_default());
}

/// What a request is that is no WRITE.
fn operation_of(request: &Request<'_>, facts: &Facts, paths: &Paths<'_>) -> Option<Operation> {
    // What its reply said of what it made.
    let (mode, time) = (facts.entry.mode, facts.time);
    let node = request.header.nodeid;
    let (first, second) = (request.names().first, request.names().second);
    let here = || paths.of(node);
    let made = || paths.below(node, first?);
    let or = |asked: u32| if mode == 0 { asked } else { mode };
    Some(match request.opcode() {
        Opcode::CREATE => {
            let create: CreateIn = request.body_as()?;
            let truncate = create.flags & O_TRUNC != 0;
            Operation::Create { path: made()?, mode: or(create.mode) & 0o7777, truncate }
        }
        Opcode::MKDIR => {
            let mkdir: MkdirIn = request.body_as()?;
            Operation::Mkdir { path: made()?, mode: or(mkdir.mode) & 0o7777 }
        }
        Opcode::MKNOD => {
            let mknod: MknodIn = request.body_as()?;
            Operation::Mknod { path: made()?, mode: or(mknod.mode), device: mknod.rdev }
        }
        Opcode::SYMLINK => Operation::Symlink { path: made()?, target: Text(second?.to_vec()) },
        Opcode::LINK => {
            let link: LinkIn = request.body_as()?;
            Operation::Link { from: paths.of(link.oldnodeid)?, path: made()? }
        }
        Opcode::UNLINK => Operation::Unlink { path: made()? },
        Opcode::RMDIR => Operation::Rmdir { path: made()? },
        Opcode::RENAME => {
            let to = request.body_as::<RenameIn>()?.newdir;
            Operation::Rename { from: made()?, path: paths.below(to, second?)?, flags: 0 }
        }
        Opcode::RENAME2 => {
            let Rename2In { newdir, flags, .. } = request.body_as()?;
            Operation::Rename { from: made()?, path: paths.below(newdir, second?)?, flags }
        }
        Opcode::OPEN => change(here()?, Some(0)),
        Opcode::SETATTR => {
            let set: SetattrIn = request.body_as()?;
            let has = |bit| set.valid.contains(bit);
            let now = Nanoseconds::from(time);
            let at = |now_bit, bit, seconds: u64, nanos: u32| match (has(now_bit), has(bit)) {
                (true, _) => Some(now),
                (false, true) => Some(
                    Nanoseconds::from(seconds.cast_signed()) * 1_000_000_000
                        + Nanoseconds::from(nanos),
                ),
                _ => None,
            };
            Operation::Change {
                path: here()?,
                mode: has(SetattrValid::MODE).then_some(set.mode & 0o7777),
                uid: has(SetattrValid::UID).then_some(set.uid),
                gid: has(SetattrValid::GID).then_some(set.gid),
                size: has(SetattrValid::SIZE).then_some(set.size),
                atime: at(SetattrValid::ATIME_NOW, SetattrValid::ATIME, set.atime, set.atimensec),
                mtime: at(SetattrValid::MTIME_NOW, SetattrValid::MTIME, set.mtime, set.mtimensec),
            }
        }
        Opcode::SETXATTR => {
            let flags = request.body_as::<SetxattrInShort>()?.flags;
            Operation::SetXattr { path: here()?, name: Text(first?.to_vec()), flags }
        }
        Opcode::REMOVEXATTR => {
            Operation::RemoveXattr { path: here()?, name: Text(first?.to_vec()) }
        }
        Opcode::FALLOCATE => {
            let FallocateIn { offset, length, mode, .. } = request.body_as()?;
            Operation::Allocate { path: here()?, mode, offset, length }
        }
        Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => {
            let copy: CopyFileRangeIn = request.body_as()?;
            Operation::Copy {
                from: here()?,
                from_offset: copy.off_in,
                path: paths.of(copy.nodeid_out)?,
                offset: copy.off_out,
                length: facts.size,
            }
        }
        _ => return None,
    })
}

fn change(path: Text, size: Option<u64>) -> Operation {
    Operation::Change { path, mode: None, uid: None, gid: None, size, atime: None, mtime: None }
}
