//! Locks on what an image is in the end, so that no two belays have it by two names, or from two
//! state directories.
//!
//! Who has all of a thing has a shared flock(2) of it, which needs an exclusive one for a moment
//! first: nobody else has any. Who has a part of it has a range of it locked (`F_OFD_SETLK`), and
//! looks by an exclusive flock of a moment whether somebody has all. Each looks once more when it
//! has its own lock, so of two at once at most one goes on. What daemons themselves lock, by
//! fcntl(2) or shared, is in nobody's way.

use super::error::Error;
use super::grounds::Ground;
use belay_sys::{Lock, PinnedFile, has_ranges, lock_range};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, OFlags, flock, fstatfs};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// File systems whose locks are a server's, and may be in the way of other kinds of locks or of
/// reading and writing: NFS, SMB, 9P, Ceph, AFS.
const OF_SERVERS: [u64; 7] =
    [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0102_1997, 0x00c3_6400, 0x5346_414f];

/// The locks of an image. They last as long as any copy of the descriptors.
#[derive(Debug, Default)]
pub struct Hold {
    locks: Vec<OwnedFd>,
    /// What could not be locked, and why.
    pub unlocked: Vec<String>,
}

impl Hold {
    /// Takes those of `image`, which is `grounds` in the end.
    ///
    /// # Errors
    /// [`Error::Taken`] if somebody else has some of it.
    pub(super) fn take(image: &Path, grounds: &[Ground]) -> Result<Self, Error> {
        let mut hold = Self::default();
        for ground in grounds {
            let what = ground.path.as_deref().unwrap_or(image).display().to_string();
            match lock(ground) {
                Ok(lock) => hold.locks.push(lock),
                Err(Errno::AGAIN) => {
                    return Err(Error::Taken { image: image.display().to_string(), what });
                }
                // Its file system has no such locks, or this user may not open it.
                Err(why) => hold.unlocked.push(format!("{what}: {why}")),
            }
        }
        Ok(hold)
    }

    /// The descriptors.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        self.locks
    }
}

fn lock(ground: &Ground) -> Result<OwnedFd, Errno> {
    let path = ground.path.as_deref().ok_or(Errno::NOENT)?;
    // To open a device has effects: first it is found out whether this is the one.
    let pinned = PinnedFile::behind(path)?;
    let stat = pinned.stat();
    let is_file = pinned.kind() == FileType::RegularFile;
    let found = if is_file { (stat.st_dev, stat.st_ino) } else { (stat.st_rdev, 0) };
    if found != (ground.behind.device, ground.behind.inode) {
        return Err(Errno::STALE);
    }
    if is_file && OF_SERVERS.contains(&(fstatfs(&pinned)?.f_type as u64)) {
        return Err(Errno::OPNOTSUPP);
    }
    let has_range = is_file && !ground.is_whole && ground.behind.through == 0;
    // Whoever closes a disk that was open for writing has it looked at anew, by udev.
    let mode = if has_range { OFlags::RDWR } else { OFlags::RDONLY };
    let file = pinned.open(mode)?;
    if ground.is_whole {
        lock_all(&file)?;
    } else {
        let kind = if has_range { Lock::Exclusive } else { Lock::Shared };
        lock_part(&file, kind, ground)?;
    }
    Ok(file)
}

fn lock_all(file: &OwnedFd) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    // The kernel may let another one have it in between.
    flock(file, FlockOperation::NonBlockingLockShared)?;
    match has_ranges(file.as_fd()).map_err(errno)? {
        true => Err(Errno::AGAIN),
        false => Ok(()),
    }
}

fn lock_part(file: &OwnedFd, kind: Lock, ground: &Ground) -> Result<(), Errno> {
    let behind = &ground.behind;
    lock_range(file.as_fd(), kind, behind.start, behind.length).map_err(errno)?;
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    flock(file, FlockOperation::Unlock)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
