//! The operations of a soak and their outcomes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Index of an open file among a worker's slots.
pub type Slot = u8;

/// How a file is opened. Fields are as in open(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "they are open(2)'s flags")]
pub struct OpenHow {
    pub read: bool,
    pub write: bool,
    pub create: bool,
    pub excl: bool,
    pub trunc: bool,
    pub append: bool,
    pub mode: u32,
}

/// Which rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameHow {
    Plain,
    NoReplace,
    Exchange,
}

/// What to do with a lock. All are attempts, none waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockHow {
    Shared,
    Exclusive,
    Unlock,
}

/// Which range locks: owned by the process or by the open file description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOwner {
    Process,
    Description,
}

/// Where a seek starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whence {
    Start,
    Current,
    End,
    Data,
    Hole,
}

/// One operation. Paths are relative to the root; data is made from a seed; a slot without an open
/// file makes the operation void.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    Open {
        slot: Slot,
        path: String,
        how: OpenHow,
    },
    Close {
        slot: Slot,
    },
    Dup {
        from: Slot,
        to: Slot,
    },
    Read {
        slot: Slot,
        len: u32,
    },
    Pread {
        slot: Slot,
        off: u64,
        len: u32,
    },
    Write {
        slot: Slot,
        len: u32,
        seed: u64,
    },
    Pwrite {
        slot: Slot,
        off: u64,
        len: u32,
        seed: u64,
    },
    Seek {
        slot: Slot,
        from: Whence,
        off: i64,
    },
    Ftruncate {
        slot: Slot,
        len: u64,
    },
    Truncate {
        path: String,
        len: u64,
    },
    /// `mode` 0 allocates, 1 keeps the size, 3 punches a hole, 0x10 zeroes.
    Fallocate {
        slot: Slot,
        mode: u32,
        off: u64,
        len: u64,
    },
    Fsync {
        slot: Slot,
        data_only: bool,
    },
    CopyRange {
        from: Slot,
        to: Slot,
        len: u32,
    },
    MmapRead {
        slot: Slot,
    },
    MmapWrite {
        slot: Slot,
        off: u64,
        len: u32,
        seed: u64,
    },
    Fstat {
        slot: Slot,
    },
    Fchmod {
        slot: Slot,
        mode: u32,
    },
    Flock {
        slot: Slot,
        how: LockHow,
    },
    RangeLock {
        slot: Slot,
        owner: LockOwner,
        how: LockHow,
        off: u64,
        len: u64,
    },
    TestLock {
        slot: Slot,
        off: u64,
        len: u64,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Rmdir {
        path: String,
    },
    Unlink {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        how: RenameHow,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Readlink {
        path: String,
    },
    Stat {
        path: String,
        follow: bool,
    },
    Statfs {
        path: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Utimens {
        path: String,
        seconds: i64,
        nanos: i64,
    },
    SetXattr {
        path: String,
        name: String,
        len: u32,
        seed: u64,
        create: bool,
        replace: bool,
    },
    GetXattr {
        path: String,
        name: String,
    },
    ListXattr {
        path: String,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    /// Makes a file, writes it and closes it.
    WriteFile {
        path: String,
        len: u32,
        seed: u64,
    },
    /// Reads a whole file through a descriptor of its own.
    ReadFile {
        path: String,
    },
    ListDir {
        path: String,
    },
    /// Opens a directory for listing in pieces.
    DirOpen {
        slot: Slot,
        path: String,
    },
    DirNext {
        slot: Slot,
        count: u32,
    },
    /// The rest of a listing; the outcome covers the listing as a whole.
    DirRest {
        slot: Slot,
    },
    /// Makes a directory and that many files in it.
    Fill {
        path: String,
        count: u32,
    },
    /// Removes a directory made by `Fill` while listing it, as `rm -r` does.
    Purge {
        path: String,
    },
}

impl Op {
    /// Whether it is about extended attributes.
    pub fn is_on_xattrs(&self) -> bool {
        matches!(
            self,
            Self::SetXattr { .. }
                | Self::GetXattr { .. }
                | Self::ListXattr { .. }
                | Self::RemoveXattr { .. }
        )
    }

    /// Whether it may change anything of the file system.
    #[cfg(test)]
    pub fn changes(&self) -> bool {
        let reads = match self {
            Self::Open { how, .. } => !how.write && !how.create && !how.trunc,
            Self::Close { .. }
            | Self::Dup { .. }
            | Self::Read { .. }
            | Self::Pread { .. }
            | Self::Seek { .. }
            | Self::MmapRead { .. }
            | Self::Fstat { .. }
            | Self::Stat { .. }
            | Self::Readlink { .. }
            | Self::Statfs { .. }
            | Self::GetXattr { .. }
            | Self::ListXattr { .. }
            | Self::ReadFile { .. }
            | Self::ListDir { .. }
            | Self::DirOpen { .. }
            | Self::DirNext { .. }
            | Self::DirRest { .. } => true,
            _ => false,
        };
        !reads
    }
}

/// The part of a file's attributes that must be the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// `f`, `d`, `l` or `?`.
    pub kind: char,
    pub mode: u32,
    /// Of files and symbolic links.
    pub size: Option<u64>,
    /// Of files.
    pub nlink: Option<u64>,
    /// Whether the object still has the inode number that it had, as far as it is known. `None` if
    /// the number is another one, and may be.
    pub ino_stable: Option<bool>,
}

/// What is said, as a [`Value::Text`], of a time that was set and is not shown.
pub const ANOTHER_TIME: &str = "another time";

/// What a successful operation gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    Unit,
    Number(i64),
    Data {
        len: u64,
        hash: String,
    },
    Attr(Attr),
    Time(i64, i64),
    Text(String),
    /// Names in order, duplicates included; long lists as count and hash.
    Names(Vec<String>),
    ManyNames {
        count: u64,
        repeated: Vec<String>,
        hash: String,
    },
    Lock {
        how: LockHow,
        off: u64,
        len: u64,
    },
    Fs {
        kind: i64,
        name_max: u64,
    },
    /// A sequence of operations: how many succeeded, and what the last one said.
    Sequence {
        done: u64,
        errno: i32,
        names: Box<Value>,
    },
}

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Ok(Value),
    /// The error number.
    Err(i32),
    /// Nothing was done, as the slot is empty.
    Void,
}

impl Outcome {
    /// Whether this is an error that only a dying file system gives.
    pub fn is_outage(&self) -> bool {
        const OUTAGE: [rustix::io::Errno; 4] = [
            rustix::io::Errno::NOTCONN,
            rustix::io::Errno::CONNABORTED,
            rustix::io::Errno::IO,
            rustix::io::Errno::INTR,
        ];
        matches!(self, Self::Err(errno) if OUTAGE.iter().any(|e| e.raw_os_error() == *errno))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok(Value::Unit) => write!(f, "ok"),
            Self::Ok(value) => write!(f, "ok {value:?}"),
            Self::Err(errno) => write!(f, "error {}", rustix::io::Errno::from_raw_os_error(*errno)),
            Self::Void => write!(f, "void (nothing open there)"),
        }
    }
}

/// One worker's operations, done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub worker: usize,
    pub ops: Vec<Op>,
}

/// A piece of the sequence: first all workers at once, each in its own tree, then the shared
/// batches one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    pub own: Vec<Batch>,
    pub shared: Vec<Batch>,
}
