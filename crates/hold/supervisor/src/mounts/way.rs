//! The way to the root of a mount, and by what that root is known.

use super::table::Mount;
use crate::look::local::is_local;
use crate::procfs;
use belay_sys::open_known;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The root of `mount`, a line of this thread's mount table, if its path leads to it. The way there
/// is gone as far as the kernel knows it, and farther only if it is `free`: nobody else serves what
/// is on it.
///
/// # Errors
/// Those of openat2(2); `EAGAIN` if the kernel does not know the way, `EXDEV` if something else is
/// there.
pub fn root_of(mount: &Mount, free: bool) -> rustix::io::Result<OwnedFd> {
    let path = Path::new(OsStr::from_bytes(&mount.mountpoint));
    let there = match open_known(CWD, path, ROOT, ResolveFlags::NO_SYMLINKS) {
        Err(_) if free => walk(path)?.1,
        found => found?,
    };
    let is_it = number(there.as_fd()) == Some(mount.id);
    is_it.then_some(there).ok_or(Errno::XDEV)
}

/// The number of the mount that a descriptor is on, which no other mount ever gets; `None` before
/// Linux 6.8. Asks no daemon.
pub fn unique(fd: BorrowedFd<'_>) -> Option<u64> {
    const MNT_ID_UNIQUE: u32 = 0x4000;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(fd, "", flags, StatxFlags::from_bits_retain(MNT_ID_UNIQUE)).ok()?;
    let has = |mask: u32| mask & MNT_ID_UNIQUE != 0;
    has(found.stx_mask).then_some(found.stx_mnt_id)
}

/// The same of `mount`, a line of this thread's mount table. Nobody is asked for the way to it.
pub fn unique_of(mount: &Mount) -> Option<u64> {
    if let Ok(found) = belay_sys::unique_number(mount.id) {
        return found;
    }
    // What filters system calls may know no new ones.
    let (_, there) = walk_known(Path::new(OsStr::from_bytes(&mount.mountpoint))).ok()?;
    unique(there.as_fd()).filter(|_| number(there.as_fd()) == Some(mount.id))
}

const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const ROOT: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The folder that `path` is in, and its name there. The root has none.
pub(crate) fn split(path: &Path) -> rustix::io::Result<(&Path, &OsStr)> {
    let parts = path.parent().zip(path.file_name());
    parts.filter(|_| path.is_absolute()).ok_or(Errno::INVAL)
}

/// The folder that `path` is in, and what is there, opened without following a link anywhere. Waits
/// for whoever serves a file system on the way.
pub(crate) fn walk(path: &Path) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (parent, name) = split(path)?;
    let mut folder = open("/", FOLDER, Mode::empty())?;
    for part in parent.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => folder = openat(&folder, name, FOLDER, Mode::empty())?,
            _ => return Err(Errno::INVAL),
        }
    }
    let there = openat(&folder, name, ROOT, Mode::empty())?;
    Ok((folder, there))
}

/// The same as far as the kernel knows it, without asking anybody: `EAGAIN` if it does not,
/// `EREMOTE` if others serve the folder.
pub(crate) fn walk_known(path: &Path) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (parent, name) = split(path)?;
    let folder = open_known(CWD, parent, FOLDER, ResolveFlags::NO_SYMLINKS)?;
    // Who unmounts for this user goes the way once more.
    if !is_local(&folder) {
        return Err(Errno::REMOTE);
    }
    let there = open_known(&folder, name, ROOT, ResolveFlags::NO_SYMLINKS)?;
    Ok((folder, there))
}

/// The number of the mount that a descriptor is on.
pub(crate) fn number(fd: BorrowedFd<'_>) -> Option<u32> {
    let info = procfs::read_text(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}
