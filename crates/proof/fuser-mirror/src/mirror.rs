//! What the daemon does, whoever has asked for it.

use crate::nodes::{Nodes, errno};
use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, TimeOrNow};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Longest value or list of extended attributes.
const LONGEST: usize = 64 << 10;

/// What is open.
#[derive(Debug)]
pub(crate) enum Open {
    File(File),
    Folder(Vec<(u64, FileType, Vec<u8>)>),
}

/// A folder, shown.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) nodes: Nodes,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    next: AtomicU64,
}

impl Mirror {
    /// Of these nodes.
    pub(crate) fn new(nodes: Nodes) -> Self {
        Self { nodes, open: Mutex::default(), next: AtomicU64::new(1) }
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<u64, Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is open from now on.
    pub(crate) fn keep(&self, what: Open) -> FileHandle {
        let number = self.next.fetch_add(1, Relaxed);
        self.opened().insert(number, Arc::new(what));
        FileHandle(number)
    }

    /// It is closed.
    pub(crate) fn close(&self, handle: FileHandle) {
        self.opened().remove(&handle.0);
    }

    /// What is open by that handle.
    pub(crate) fn handle(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        self.opened().get(&handle.0).map(Arc::clone).ok_or(Errno::EBADF)
    }

    /// Does something with an open file.
    pub(crate) fn with_file<T>(
        &self,
        handle: FileHandle,
        work: impl FnOnce(&File) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match &*self.handle(handle)? {
            Open::File(file) => work(file),
            Open::Folder(_) => Err(Errno::EISDIR),
        }
    }

    /// Does something with the path of a node.
    pub(crate) fn at<T>(
        &self,
        node: INodeNo,
        work: impl FnOnce(&str) -> rustix::io::Result<T>,
    ) -> Result<T, Errno> {
        let (_pinned, path) = self.nodes.path(node)?;
        work(&path).map_err(errno)
    }

    /// What `read` gives of a node: a value of an extended attribute, or their names.
    pub(crate) fn attributes(
        &self,
        node: INodeNo,
        read: impl FnOnce(&str, &mut [u8]) -> rustix::io::Result<usize>,
    ) -> Result<Vec<u8>, Errno> {
        self.at(node, |path| {
            let mut found = vec![0; LONGEST];
            let length = read(path, &mut found)?;
            found.truncate(length);
            Ok(found)
        })
    }

    /// Opens a node.
    pub(crate) fn open_node(&self, node: INodeNo, flags: i32) -> Result<FileHandle, Errno> {
        let kept = flags & !(libc::O_NOFOLLOW | libc::O_CREAT | libc::O_EXCL);
        let (_pinned, path) = self.nodes.path(node)?;
        let flags = OFlags::from_bits_retain(kept.cast_unsigned()) | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        Ok(self.keep(Open::File(file.into())))
    }

    /// Does something to a name in a folder, and looks it up.
    pub(crate) fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        work: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<()>,
    ) -> Result<FileAttr, Errno> {
        work(self.nodes.pinned(parent)?.as_fd()).map_err(errno)?;
        self.nodes.look_up(parent, name)
    }

    /// Removes a name, of a file or, with that flag, of a folder.
    pub(crate) fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        rustix::fs::unlinkat(self.nodes.pinned(parent)?.as_fd(), name, flags).map_err(errno)
    }

    /// Makes a file and opens it.
    pub(crate) fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle), Errno> {
        let flags = OFlags::from_bits_retain((flags & !libc::O_NOFOLLOW).cast_unsigned());
        let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
        let parent_pinned = self.nodes.pinned(parent)?;
        let file =
            rustix::fs::openat(parent_pinned.as_fd(), name, flags, Mode::from_raw_mode(mode));
        let file = file.map_err(errno)?;
        let attr = self.nodes.look_up(parent, name)?;
        Ok((attr, self.keep(Open::File(file.into()))))
    }

    /// Reads as much of a file as there is.
    pub(crate) fn read_file(
        &self,
        handle: FileHandle,
        offset: u64,
        size: u32,
    ) -> Result<Vec<u8>, Errno> {
        self.with_file(handle, |file| {
            let (mut data, mut filled) = (vec![0; size as usize], 0);
            while let Some(room) = data.get_mut(filled..).filter(|room| !room.is_empty()) {
                match file.read_at(room, offset + filled as u64)? {
                    0 => break,
                    got => filled += got,
                }
            }
            data.truncate(filled);
            Ok(data)
        })
    }

    /// Changes a node's attributes.
    pub(crate) fn change(&self, node: INodeNo, wish: &Wish) -> Result<FileAttr, Errno> {
        let (pinned, path) = self.nodes.path(node)?;
        if let Some(mode) = wish.mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode & 0o7777)).map_err(errno)?;
        }
        if wish.uid.is_some() || wish.gid.is_some() {
            let (uid, gid) = (wish.uid.map(Uid::from_raw), wish.gid.map(Gid::from_raw));
            rustix::fs::chownat(pinned.as_fd(), "", uid, gid, AtFlags::EMPTY_PATH)
                .map_err(errno)?;
        }
        if let Some(size) = wish.size {
            match wish.handle {
                Some(handle) => self.with_file(handle, |file| Ok(file.set_len(size)?))?,
                None => File::options().write(true).open(&path)?.set_len(size)?,
            }
        }
        if wish.atime.is_some() || wish.mtime.is_some() {
            let (last_access, last_modification) = (stamp(wish.atime), stamp(wish.mtime));
            let times = Timestamps { last_access, last_modification };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).map_err(errno)?;
        }
        self.nodes.attr(node)
    }
}

/// What is to be changed of a node.
pub(crate) struct Wish {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
    pub(crate) handle: Option<FileHandle>,
}

fn stamp(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timespec {
                tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: since.subsec_nanos().into(),
            },
            Err(before) => {
                // Nanoseconds count upwards, also before the epoch.
                let (whole, part) = (before.duration().as_secs(), before.duration().subsec_nanos());
                let whole = i64::try_from(whole).unwrap_or(i64::MAX) + i64::from(part > 0);
                let tv_nsec = if part > 0 { 1_000_000_000 - i64::from(part) } else { 0 };
                Timespec { tv_sec: -whole, tv_nsec }
            }
        },
    }
}
