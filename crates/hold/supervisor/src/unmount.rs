//! Taking mounts away, and never another one.
//!
//! Between the look at the mount table and the unmount, whoever owns a folder on the way can put
//! another in its place. So a path is only where a mount is looked for: it is opened without
//! following links, what is there must have the number that the mount table gives to the mount that
//! is meant, and what is unmounted is that descriptor's, or the name in a parent that is held by
//! descriptor. Opening a mount's root with `O_PATH` and reading its number (fdinfo) asks no daemon
//! of it.
//!
//! The way there may ask whoever serves another file system, which the mount lies on; a parent that
//! was held before is no help, as it is asked for the last name each time. So it is gone as far as
//! the kernel knows it; all else is a scout's to go, who is waited for with a limit. Only threads
//! of their own go it themselves.

use crate::error::passes;
use crate::fusermount;
use crate::mounts::held::{MountFact, uncovered};
use crate::mounts::table::{Mount, forget};
use crate::mounts::way::{number, split, walk, walk_known};
use crate::scout::Scouts;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How often a mount is looked for again whose path leads elsewhere: each look costs microseconds,
/// and somebody who exchanges folders all the time must be wrong once.
const LOOKS: u32 = 1000;
/// How many scouts are sent for one mount.
const SENT: u32 = 3;

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Not if it is in use.
    Idle,
    /// Not if it is in use; callers that wait for its daemon get an error first, whether it is in
    /// use or not.
    Forced,
    /// In use or not: it leaves the tree at once, and ends with its last use.
    Detached,
}

/// Takes the held mount away, wherever it is now; says whether that was done. What has its numbers
/// is opened, which keeps it there, and `is_still` asked whether it is the held one.
///
/// `scouts` go where one may have to wait; without them, this thread goes there itself.
///
/// # Errors
/// What the machine lacks for it now: a process, a thread, a descriptor, memory; or
/// [`ErrorKind::TimedOut`].
pub fn take_off(
    fact: &MountFact,
    how: How,
    scouts: Option<&Scouts>,
    is_still: impl Fn(BorrowedFd<'_>, &Mount) -> bool,
) -> io::Result<bool> {
    let mut last = Errno::INVAL;
    let walk = Walk::by(scouts);
    for _ in 0..LOOKS {
        let mount = match uncovered(fact) {
            Ok(Some(mount)) => mount,
            Err(error) if passes(&error) => return Err(error),
            Ok(None) | Err(_) => return Ok(false),
        };
        match take_off_if(&mount, how, &walk, |there| is_still(there, &mount)) {
            Ok(()) => return Ok(true),
            Err(Errno::TIMEDOUT) => return Err(silent()),
            // The held one is gone.
            Err(Errno::STALE) => return Ok(false),
            Err(why) if passes(&why.into()) => return Err(why.into()),
            // It leads elsewhere by now.
            Err(why @ (Errno::XDEV | Errno::NOTDIR | Errno::NOENT | Errno::LOOP)) => {
                forget();
                last = why;
            }
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
    take_off_if(mount, how, &Walk::by(None), |_| true)
}

/// What is said of a way that cannot be gone now.
pub fn silent() -> io::Error {
    let why = "whoever serves the file system that it lies on does not answer";
    io::Error::new(ErrorKind::TimedOut, why)
}

/// Who goes the ways to mounts.
#[derive(Debug)]
struct Walk<'a> {
    scouts: Option<&'a Scouts>,
    /// How many may be sent still: whoever serves a file system may lead each of them elsewhere.
    left: Cell<u32>,
}

impl<'a> Walk<'a> {
    fn by(scouts: Option<&'a Scouts>) -> Self {
        Self { scouts, left: Cell::new(SENT) }
    }

    /// The folder that the mount at `path` is in, and its root.
    fn go(&self, path: &Path) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let Some(scouts) = self.scouts else { return walk(path) };
        match walk_known(path) {
            // Nobody knows it, or somebody else serves it.
            Err(Errno::AGAIN | Errno::REMOTE) => {}
            // Old kernels cannot be asked in this way, and filters of system calls may not let it
            // through.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {}
            found => return found,
        }
        let Some(left) = self.left.get().checked_sub(1) else { return Err(Errno::TIMEDOUT) };
        self.left.set(left);
        scouts.root(path)
    }
}

/// Whether the way to `mount` can be gone without waiting for anybody, as far as is known.
///
/// # Errors
/// `ETIMEDOUT` if whoever serves a file system on it does not answer, `ESTALE` if it leads
/// elsewhere.
pub fn is_near(mount: &Mount, scouts: &Scouts) -> rustix::io::Result<bool> {
    let walk = Walk::by(Some(scouts));
    match open_root(mount, &walk) {
        Ok(_) => Ok(walk.left.get() == SENT),
        Err(why) if why == Errno::TIMEDOUT || passes(&why.into()) => Err(why),
        Err(_) => Err(Errno::STALE),
    }
}

fn take_off_if(
    mount: &Mount,
    how: How,
    walk: &Walk<'_>,
    is_meant: impl FnOnce(BorrowedFd<'_>) -> bool,
) -> rustix::io::Result<()> {
    // Whatever stands in the way there (a mount of another user's, which refuses root) may be gone
    // at the next look.
    let (parent, name, there) = open_root(mount, walk).map_err(|why| match why {
        why if why == Errno::TIMEDOUT || passes(&why.into()) => why,
        _ => Errno::XDEV,
    })?;
    if !is_meant(there.as_fd()) {
        return Err(Errno::STALE);
    }
    let done = match how {
        // The link leads to the descriptor's own mount, whatever has become of the path.
        How::Detached => detach(there.as_fd()),
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
fn open_root(mount: &Mount, walk: &Walk<'_>) -> rustix::io::Result<(OwnedFd, OsString, OwnedFd)> {
    let path = Path::new(OsStr::from_bytes(&mount.mountpoint));
    let (_, name) = split(path)?;
    let (parent, there) = walk.go(path)?;
    if number(there.as_fd()) != Some(mount.id) {
        return Err(Errno::XDEV);
    }
    Ok((parent, name.to_owned(), there))
}

/// Takes the mount off whose root a descriptor of this thread's is, in use or not. Nobody is asked
/// for the way there.
///
/// # Errors
/// Those of umount(2).
pub fn detach(root: BorrowedFd<'_>) -> rustix::io::Result<()> {
    unmount(link(root), UnmountFlags::DETACH)
}

/// The path that leads to what a descriptor of this thread's names, and to nothing else.
fn link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}
