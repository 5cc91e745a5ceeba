//! What is found at a path.

use crate::rights;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What statx(2) says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// The number of its file system.
    pub device: u64,
    /// Its own number there.
    pub inode: u64,
    /// Its length.
    pub size: u64,
    /// Its kind and rights.
    pub mode: u32,
    /// When its content was last changed: seconds, and nanoseconds.
    pub modified: (i64, u32),
    /// When anything of it was last changed.
    pub changed: (i64, u32),
}

impl FileStat {
    /// What the kernel knows of an open file. No server is asked.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn known(file: &impl AsFd) -> rustix::io::Result<Self> {
        Self::of(file, AtFlags::STATX_DONT_SYNC)
    }

    /// What is so now. Its server may be asked, and waited for.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn asked(file: &impl AsFd) -> rustix::io::Result<Self> {
        Self::of(file, AtFlags::empty())
    }

    fn of(file: &impl AsFd, flags: AtFlags) -> rustix::io::Result<Self> {
        let flags = flags | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let stat = statx(file, c"", flags, StatxFlags::BASIC_STATS)?;
        let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        Ok(Self {
            device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            mode: stat.stx_mode.into(),
            modified: time(stat.stx_mtime),
            changed: time(stat.stx_ctime),
        })
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        FileType::from_raw_mode(self.mode).is_symlink()
    }
}

/// Whether links at the end of a path are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// They are.
    Followed,
    /// They are what is looked for.
    Themselves,
}

impl Links {
    /// As open(2) has it, to pin a file only.
    pub fn flags(self) -> OFlags {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if self == Self::Followed { flags } else { flags | OFlags::NOFOLLOW }
    }
}

/// A file that was found.
#[derive(Debug)]
pub struct There {
    /// It, pinned (`O_PATH`): it can be run, but not read.
    pub pinned: OwnedFd,
    /// What is known of it.
    pub stat: FileStat,
    /// Which rights it would give to who runs it, if that was asked already.
    pub gained: Option<Option<String>>,
}

impl There {
    /// Which rights that this process has not it would give to who runs it.
    pub fn gained(&self) -> Option<String> {
        match &self.gained {
            Some(known) => known.clone(),
            // It is on a file system of this machine.
            None => rights::gained_by(self.pinned.as_fd()).ok().flatten(),
        }
    }
}

/// What is at a path.
#[derive(Debug)]
pub enum Found {
    /// Nobody knows: it is behind the held mount, or whoever serves it does not answer.
    Unknown,
    /// It cannot be had.
    Not(Errno),
    /// This.
    There(There),
}

impl Found {
    /// What is there, if anything is known to be.
    pub fn there(self) -> Option<There> {
        match self {
            Self::There(there) => Some(there),
            Self::Unknown | Self::Not(_) => None,
        }
    }

    /// Whether surely nothing is there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Not(Errno::NOENT | Errno::NOTDIR))
    }
}
