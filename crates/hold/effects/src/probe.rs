//! Whether a call without a recorded result was carried out, from what there is now.
//!
//! A name that is there may have been there before. Times do not tell: some file systems keep whole
//! seconds (ext2 with small inodes), some two of them (FAT), and those of a server come from
//! another clock. Taken for older than the call, what the call has made is refused to its maker
//! (EEXIST); taken for younger, what somebody else has made in that second is given away as new,
//! and two believe to have made it. So it is looked at before the call whether the name is there
//! ([`Entry::before`]), and both are impossible, but for what others do between the look and the
//! call; what they make of another type than the call does is not taken for what it has made. The
//! look costs a system call each time something is made or removed; the kernel has just asked the
//! daemon for that name, so it is mostly answered from what its file system has in memory.

use crate::call::Kind;
use crate::log::Entry;

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Device and inode number.
    pub id: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// What it is, by the type in its mode (`S_IFMT`).
    pub file_type: u32,
}

impl File {
    /// Whether a call of this kind may have made it.
    fn is_made_by(&self, kind: Kind) -> bool {
        use rustix::fs::FileType;
        let found = FileType::from_raw_mode(self.file_type);
        match kind {
            Kind::OpenNew | Kind::OpenShut => found == FileType::RegularFile,
            Kind::Mkdir => found == FileType::Directory,
            Kind::Symlink => found == FileType::Symlink,
            _ => !matches!(found, FileType::Directory | FileType::Symlink),
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// What the call's first name (or descriptor) leads to.
    pub first: Option<File>,
    /// What its second name leads to.
    pub second: Option<File>,
    /// Of an extended attribute: it is there.
    pub attribute: bool,
}

/// What the probe says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was carried out, with this result.
    Done(i64),
    /// It was not carried out, or doing it again gives what it gave.
    Again,
    /// A part was carried out: cut the file to this size, then do it again.
    Cut(u64),
    /// Neither can be said.
    Unknown,
}

/// `BEFORE` of a name, or an extended attribute, that was there.
pub const PRESENT: u64 = 1;

/// Settles a write that comes again with other bytes of the same length: how it can be made over
/// what was written before.
pub fn settle_over(kind: Kind, entry: &Entry, probed: &Probed, length: u64) -> Settled {
    match (kind, probed.first) {
        (Kind::Write | Kind::WriteAt, _) => Settled::Again,
        // What it has written is the end of the file still, or nobody can tell what is behind it by
        // now.
        (Kind::Append, Some(file)) => {
            let end = |bytes: u64| entry.before.saturating_add(bytes);
            let is_last = match entry.outcome {
                Some((written, _)) => file.size == end(u64::try_from(written).unwrap_or(0)),
                None => (entry.before..=end(length)).contains(&file.size),
            };
            if is_last { Settled::Cut(entry.before) } else { Settled::Unknown }
        }
        _ => Settled::Unknown,
    }
}

/// Whether a call could only fail, from what there was before it.
pub fn is_in_vain(kind: Kind, entry: &Entry) -> bool {
    let present = entry.before == PRESENT;
    match kind {
        Kind::OpenNew | Kind::Mkdir | Kind::Mknod | Kind::Symlink | Kind::XattrCreate => present,
        Kind::Unlink | Kind::Rmdir | Kind::XattrRemove => !present,
        _ => false,
    }
}

/// Settles an entry without outcome. `length` is how much a write was to write.
pub fn settle(kind: Kind, entry: &Entry, probed: &Probed, length: u64) -> Settled {
    match kind {
        Kind::OpenNew | Kind::OpenShut | Kind::Mkdir | Kind::Mknod | Kind::Symlink => {
            match probed.first {
                Some(file) if entry.before != PRESENT && file.is_made_by(kind) => Settled::Done(0),
                // It was there before, or somebody else has made it: the call says so itself, as it
                // did or would have done.
                Some(_) | None => Settled::Again,
            }
        }
        Kind::Link => match (probed.first, probed.second) {
            (Some(old), Some(new)) if old.id == new.id => Settled::Done(0),
            _ => Settled::Again,
        },
        Kind::Unlink | Kind::Rmdir => {
            if entry.before == PRESENT && probed.first.is_none() {
                Settled::Done(0)
            } else {
                Settled::Again
            }
        }
        Kind::Rename => match (probed.first, probed.second) {
            (None, Some(_)) => Settled::Done(0),
            // Two names of one file: a rename changes nothing, now as then.
            (Some(_), _) => Settled::Again,
            (None, None) => Settled::Unknown,
        },
        Kind::Exchange => match (probed.first, probed.second) {
            (Some(first), _) if first.id.1 == entry.before => Settled::Again,
            (_, Some(second)) if second.id.1 == entry.before => Settled::Done(0),
            _ => Settled::Unknown,
        },
        Kind::Append => match probed.first {
            Some(file) if file.size == entry.before => Settled::Again,
            Some(file) if file.size >= entry.before.saturating_add(length) => {
                Settled::Done(length as i64)
            }
            Some(file) if file.size > entry.before => Settled::Cut(entry.before),
            _ => Settled::Unknown,
        },
        Kind::Shift => match probed.first {
            Some(file) if file.size == entry.before => Settled::Again,
            Some(_) => Settled::Done(0),
            None => Settled::Unknown,
        },
        Kind::XattrCreate => {
            if entry.before != PRESENT && probed.attribute {
                Settled::Done(0)
            } else {
                Settled::Again
            }
        }
        Kind::XattrRemove => {
            if entry.before == PRESENT && !probed.attribute {
                Settled::Done(0)
            } else {
                Settled::Again
            }
        }
        Kind::Send => Settled::Unknown,
        _ => Settled::Again,
    }
}
