//! What the kernel knows of the folder: each file once, by its inode number.

use fuser::{Errno, FileAttr, FileType, INodeNo};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, statat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A file that the kernel has looked up, pinned (`O_PATH`).
#[derive(Debug)]
struct Node {
    pinned: Arc<OwnedFd>,
    lookups: u64,
}

/// All that the kernel knows.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: Arc<OwnedFd>,
    known: Mutex<HashMap<u64, Node>>,
}

impl Nodes {
    /// Of the folder `root`.
    pub(crate) fn new(root: &Path) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(rustix::fs::open(root, flags, Mode::empty())?);
        Ok(Self { root, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the node is.
    pub(crate) fn pinned(&self, number: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        match number {
            INodeNo::ROOT => Ok(Arc::clone(&self.root)),
            INodeNo(number) => {
                let known = self.known();
                known.get(&number).map(|node| Arc::clone(&node.pinned)).ok_or(Errno::ESTALE)
            }
        }
    }

    /// The path by which the node itself is reached, whatever its name is.
    pub(crate) fn path(&self, number: INodeNo) -> Result<(Arc<OwnedFd>, String), Errno> {
        let pinned = self.pinned(number)?;
        let path = format!("/proc/self/fd/{}", pinned.as_raw_fd());
        Ok((pinned, path))
    }

    pub(crate) fn attr(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        let stat = fstat(&*self.pinned(number)?).map_err(errno)?;
        Ok(self.attr_of(&stat))
    }

    fn attr_of(&self, stat: &Stat) -> FileAttr {
        let mut attr = attr(stat);
        if fstat(&*self.root).is_ok_and(|root| same(&root, stat)) {
            attr.ino = INodeNo::ROOT;
        }
        attr
    }

    /// Finds a name for the kernel, which knows its node then.
    pub(crate) fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = self.pinned(parent)?;
        let pinned = openat(parent.as_fd(), name, flags, Mode::empty()).map_err(errno)?;
        let attr = self.attr_of(&fstat(&pinned).map_err(errno)?);
        let mut known = self.known();
        let node = known
            .entry(attr.ino.0)
            .or_insert_with(|| Node { pinned: Arc::new(pinned), lookups: 0 });
        node.lookups += 1;
        Ok(attr)
    }

    /// The kernel has forgotten so many of its lookups.
    pub(crate) fn forget(&self, number: INodeNo, lookups: u64) {
        let mut known = self.known();
        if let Some(node) = known.get_mut(&number.0) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 {
                known.remove(&number.0);
            }
        }
    }

    /// What is in a directory.
    pub(crate) fn list(&self, number: INodeNo) -> Result<Vec<(u64, FileType, Vec<u8>)>, Errno> {
        let (_pinned, path) = self.path(number)?;
        let folder = File::open(path)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let stat = statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            // It may have gone meanwhile.
            let Ok(stat) = stat else { continue };
            let attr = attr(&stat);
            found.push((attr.ino.0, attr.kind, entry.file_name().to_bytes().to_vec()));
        }
        Ok(found)
    }
}

/// The same number, said in fuser's words.
pub(crate) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn attr(stat: &Stat) -> FileAttr {
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    };
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
        blksize: 4096,
        flags: 0,
    }
}

fn time(seconds: i64, nanos: u64) -> SystemTime {
    let (whole, part) = (Duration::from_secs(seconds.unsigned_abs()), Duration::from_nanos(nanos));
    let epoch = SystemTime::UNIX_EPOCH;
    let base = if seconds < 0 { epoch.checked_sub(whole) } else { epoch.checked_add(whole) };
    base.and_then(|base| base.checked_add(part)).unwrap_or(epoch)
}
