//! Taking mounts away, and never another one.
//!
//! Between the look at the mount table and the unmount, whoever owns a folder on the way can put another in its place. So a
//! path is only where a mount is looked for: it is opened without following links, what is there must have the number that
//! the mount table gives to the mount that is meant, and what is unmounted is that descriptor's, or the name in a parent
//! that is held by descriptor. Opening a mount's root with `O_PATH` and reading its number (fdinfo) asks no daemon.

use crate::error::passes;
use crate::fusermount;
use crate::mounts::{self, Mount, MountFact};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, openat, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// How often a mount is looked for again whose path leads elsewhere: each look costs microseconds, and somebody who exchanges
/// folders all the time must be wrong once.
const LOOKS: u32 = 1000;

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Not if it is in use.
    Idle,
    /// Not if it is in use; callers that wait for its daemon get an error first, whether it is in use or not.
    Forced,
    /// In use or not: it leaves the tree at once, and ends with its last use.
    Detached,
}

/// Takes the held mount away, wherever it is now; says whether that was done. What has its numbers is opened, which keeps it
/// there, and `is_still` asked whether it is the held one.
///
/// # Errors
/// What the machine lacks for it now: a process, a thread, a descriptor, memory.
pub fn take_off(
    fact: &MountFact,
    how: How,
    is_still: impl Fn(BorrowedFd<'_>, &Mount) -> bool,
) -> io::Result<bool> {
    let mut last = Errno::INVAL;
    for _ in 0..LOOKS {
        let mount = match mounts::uncovered(fact) {
            Ok(Some(mount)) => mount,
            Err(error) if passes(&error) => return Err(error),
            Ok(None) | Err(_) => return Ok(false),
        };
        match take_off_if(&mount, how, |there| is_still(there, &mount)) {
            Ok(()) => return Ok(true),
            // The held one is gone.
            Err(Errno::STALE) => return Ok(false),
            Err(why) if passes(&why.into()) => return Err(why.into()),
            // It leads elsewhere by now.
            Err(why @ (Errno::XDEV | Errno::NOTDIR | Errno::NOENT | Errno::LOOP)) => last = why,
            Err(why) => {
                last = why;
                break;
            }
        }
    }
    tracing::debug!("{} is not unmounted: {last}", fact.mountpoint.show());
    Ok(false)
}

/// Takes `mount`, a line of this thread's mount table, away, if its path leads to it.
///
/// # Errors
/// Those of openat(2) and umount(2); `EXDEV` if something else is there.
pub fn take_off_once(mount: &Mount, how: How) -> rustix::io::Result<()> {
    take_off_if(mount, how, |_| true)
}

fn take_off_if(
    mount: &Mount,
    how: How,
    is_meant: impl FnOnce(BorrowedFd<'_>) -> bool,
) -> rustix::io::Result<()> {
    // Whatever stands in the way there (a mount of another user's, which refuses root) may be gone at the next look.
    let (parent, name, there) =
        open_root(mount).map_err(|why| if passes(&why.into()) { why } else { Errno::XDEV })?;
    if !is_meant(there.as_fd()) {
        return Err(Errno::STALE);
    }
    let done = match how {
        // The link leads to the descriptor's own mount, whatever has become of the path.
        How::Detached => unmount(link(there.as_fd()), UnmountFlags::DETACH),
        How::Idle | How::Forced => {
            // A descriptor is a use.
            drop(there);
            let force =
                if how == How::Forced { UnmountFlags::FORCE } else { UnmountFlags::empty() };
            let away = || unmount(&name, force | UnmountFlags::NOFOLLOW);
            let why = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            belay_sys::in_directory(parent.as_fd(), away).map_err(why).and_then(|done| done)
        }
    };
    match done {
        Err(Errno::PERM) => {
            match fusermount::unmount(parent.as_fd(), &name, how == How::Detached) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::PERM),
                Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)),
            }
        }
        done => done,
    }
}

/// The root of a mount, and by what it is reached: its folder, and its name there.
fn open_root(mount: &Mount) -> rustix::io::Result<(OwnedFd, OsString, OwnedFd)> {
    let path = Path::new(OsStr::from_bytes(&mount.mountpoint));
    let (parent, name) = open_parent(path)?;
    let there =
        openat(&parent, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if number(there.as_fd()) != Some(mount.id) {
        return Err(Errno::XDEV);
    }
    Ok((parent, name, there))
}

/// The number of the mount that a descriptor is on, which no other mount ever gets; `None` before Linux 6.8. Asks no daemon.
pub fn unique(fd: BorrowedFd<'_>) -> Option<u64> {
    const MNT_ID_UNIQUE: u32 = 0x4000;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(fd, "", flags, StatxFlags::from_bits_retain(MNT_ID_UNIQUE)).ok()?;
    let has = |mask: u32| mask & MNT_ID_UNIQUE != 0;
    has(found.stx_mask).then_some(found.stx_mnt_id)
}

/// The same of `mount`, a line of this thread's mount table.
pub fn unique_of(mount: &Mount) -> Option<u64> {
    unique(open_root(mount).ok()?.2.as_fd())
}

/// The folder that `path` is in, opened without following a link anywhere, and the name in it. The root has none.
fn open_parent(path: &Path) -> rustix::io::Result<(OwnedFd, OsString)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute())
    else {
        return Err(Errno::INVAL);
    };
    let mut folder = open("/", flags, Mode::empty())?;
    for part in parent.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => folder = openat(&folder, name, flags, Mode::empty())?,
            _ => return Err(Errno::INVAL),
        }
    }
    Ok((folder, name.to_owned()))
}

/// The number of the mount that a descriptor is on.
fn number(fd: BorrowedFd<'_>) -> Option<u32> {
    let info = fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// The path that leads to what a descriptor of this thread's names, and to nothing else.
fn link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}
