//! What applications do, and what it gives.

use super::disk::Res;
use std::collections::BTreeSet;

pub const O_CREAT: u32 = 0o100;
pub const O_EXCL: u32 = 0o200;
pub const O_TRUNC: u32 = 0o1000;
pub const O_APPEND: u32 = 0o2000;
pub const RDWR: u32 = 2;

/// An operation of an application. Paths have components separated by `/`, from the root.
#[derive(Clone, Debug)]
pub enum Op {
    /// open(2) with O_CREAT.
    Create {
        path: String,
        flags: u32,
        mode: u32,
        fd: usize,
    },
    Open {
        path: String,
        flags: u32,
        fd: usize,
    },
    Close(usize),
    Read {
        fd: usize,
        at: usize,
        len: usize,
    },
    Write {
        fd: usize,
        at: usize,
        data: String,
    },
    /// Needs a file opened with O_APPEND.
    Append {
        fd: usize,
        data: String,
    },
    Mkdir(String),
    Mknod(String),
    Symlink(String, String),
    Readlink(String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u32),
    Stat(String),
    Fstat(usize),
    Chmod(String, u32),
    Truncate(String, usize),
    Ftruncate(usize, usize),
    SetXattr {
        path: String,
        name: &'static str,
        value: String,
        flags: u32,
    },
    GetXattr(String, &'static str),
    RemoveXattr(String, &'static str),
    Opendir(String, usize),
    /// A batch of a listing: room in bytes, how many entries are consumed, READDIRPLUS.
    List {
        dd: usize,
        room: u32,
        take: usize,
        plus: bool,
    },
    /// The rest of a listing; its outcome is all of it.
    ListRest {
        dd: usize,
        room: u32,
        plus: bool,
    },
    Rewind(usize),
    Closedir(usize),
    Lock {
        fd: usize,
        owner: u64,
        start: u64,
        end: u64,
        kind: u32,
        wait: bool,
    },
    Flock {
        fd: usize,
        kind: u32,
    },
    Poll(usize),
    /// fsync(2).
    Fsync(usize),
    /// Drops dentries; percent.
    Shrink(u64),
}

/// What an operation gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Unit,
    Bytes(Vec<u8>),
    /// A file: who it is (inode or node id), mode, size, links.
    Node {
        who: u64,
        mode: u32,
        size: u64,
        nlink: u32,
    },
    Names(Vec<Vec<u8>>),
    /// Names that a listing must and may have.
    Expect {
        must: BTreeSet<Vec<u8>>,
        may: BTreeSet<Vec<u8>>,
    },
}

pub type Given = Res<Value>;
