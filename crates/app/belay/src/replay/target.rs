//! How an operation is carried out: by system calls below a mountpoint, and nowhere else.
//!
//! The paths come from a file that anybody may have written, so the kernel is asked to stay below
//! the mountpoint, on that file system, and to follow no link (openat2). Times are set to those of
//! the operation, as far as calls can set them: it is then that it happened.

mod attributes;

use anyhow::{Context, Result, bail};
use attributes::{NOBODY_ELSE, chmod, chown, old_device, set_mtime, set_times};
use belay_oplog::kept::{Nanoseconds, Operation, Step, Text};
use belay_supervisor::mounts;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A mounted file system.
#[derive(Debug)]
pub struct Target {
    root: OwnedFd,
}

/// Why an operation did not come out as it did, for people.
pub type Outcome<T> = std::result::Result<T, String>;

fn told(what: &str) -> impl Fn(Errno) -> String {
    let what = what.to_owned();
    move |why| format!("cannot {what}: {why}")
}

impl Target {
    /// The file system that is mounted at `mount`; with `anywhere`, the directory that is there.
    pub fn open(mount: &Path, anywhere: bool) -> Result<Self> {
        let is_mounted = || mount.canonicalize().is_ok_and(|path| mounts::at(&path).is_some());
        if !anywhere && mount.is_dir() && !is_mounted() {
            bail!(
                "nothing is mounted at {}: mount the image there first, or what is applied would not be on it (`--anywhere` \
                 applies it to a plain directory)",
                mount.display()
            );
        }
        // What is made has the mode that it had.
        rustix::process::umask(Mode::empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(mount, flags, Mode::empty()).with_context(|| {
            format!("cannot open the mountpoint {}: mount the image there first", mount.display())
        })?;
        Ok(Self { root })
    }

    /// Has the file system write all that it holds. Linux tells FUSE daemons nothing of syncfs, and
    /// of an fsync all: under belay that makes a checkpoint, and fuse2fs writes everything.
    pub fn settle(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&self.root, ".", flags, Mode::empty())?;
        rustix::fs::syncfs(&top)?;
        match rustix::fs::fsync(&top) {
            Err(Errno::INVAL) => Ok(()), // no such thing there
            done => Ok(done?),
        }
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, path: &Text) -> Outcome<()> {
        match self.parent(path) {
            Ok((dir, name)) => {
                let gone = rustix::fs::unlinkat(&dir, name, AtFlags::empty());
                done(gone, Some(Errno::NOENT), "remove it")
            }
            Err(_) => Ok(()), // nor is its directory
        }
    }

    /// Carries `step` out. `again`: it was begun before, and may have been carried out then.
    pub fn apply(&self, step: &Step, again: bool) -> Outcome<()> {
        let time = Nanoseconds::from(step.time);
        match &step.operation {
            Operation::Create { path, mode, truncate } => {
                self.create(step, path, *mode, *truncate, again)
            }
            Operation::Mkdir { path, mode } => {
                let (dir, name) = self.parent(path)?;
                let made = rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(*mode));
                done(made, again.then_some(Errno::EXIST), "make the directory")?;
                self.own(step, path, FileType::Directory, Some(*mode))?;
                set_mtime(&dir, time)
            }
            Operation::Mknod { path, mode, device } => {
                let (dir, name) = self.parent(path)?;
                let kind = match FileType::from_raw_mode(*mode) {
                    FileType::Unknown => FileType::RegularFile,
                    kind => kind,
                };
                let made = rustix::fs::mknodat(
                    &dir,
                    name,
                    kind,
                    Mode::from_raw_mode(*mode & NOBODY_ELSE),
                    old_device(*device),
                );
                done(made, again.then_some(Errno::EXIST), "make the node")?;
                self.own(step, path, kind, Some(*mode & NOBODY_ELSE))?;
                set_mtime(&dir, time)
            }
            Operation::Symlink { path, target } => {
                let (dir, name) = self.parent(path)?;
                let made = rustix::fs::symlinkat(OsStr::from_bytes(&target.0), &dir, name);
                done(made, again.then_some(Errno::EXIST), "make the link")?;
                self.own(step, path, FileType::Symlink, None)?;
                set_mtime(&dir, time)
            }
            Operation::Link { from, path } => {
                let ((old, old_name), (dir, name)) = (self.parent(from)?, self.parent(path)?);
                let made = rustix::fs::linkat(&old, old_name, &dir, name, AtFlags::empty());
                done(made, again.then_some(Errno::EXIST), "make the link")?;
                set_mtime(&dir, time)
            }
            Operation::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                let gone = rustix::fs::unlinkat(&dir, name, AtFlags::empty());
                done(gone, again.then_some(Errno::NOENT), "remove it")?;
                set_mtime(&dir, time)
            }
            Operation::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                let gone = rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR);
                done(gone, again.then_some(Errno::NOENT), "remove the directory")?;
                set_mtime(&dir, time)
            }
            Operation::Rename { from, path, flags } => {
                self.rename(from, path, RenameFlags::from_bits_retain(*flags), again, time)
            }
            Operation::Write { path, offset } => {
                let file = self.file(path)?;
                let mut done = 0;
                while let Some(rest) = step.data.get(done..).filter(|rest| !rest.is_empty()) {
                    let at = offset
                        .checked_add(done as u64)
                        .ok_or("its place is beyond the end of any file")?;
                    match rustix::io::pwrite(&file, rest, at) {
                        Ok(0) => return Err("not all was written".to_owned()),
                        Ok(n) => done += n,
                        Err(Errno::INTR) => {}
                        Err(why) => return Err(told("write")(why)),
                    }
                }
                set_mtime(&file, time)
            }
            Operation::Change { path, mode, uid, gid, size, atime, mtime } => {
                let node = self.node(path)?;
                if let Some(size) = size {
                    let file = self.file(path)?;
                    rustix::fs::ftruncate(&file, *size).map_err(told("set its length"))?;
                }
                if uid.is_some() || gid.is_some() {
                    chown(&node, *uid, *gid)?;
                }
                if let Some(mode) = mode {
                    chmod(&node, *mode)?;
                }
                let mtime = mtime.or(size.map(|_| time));
                set_times(&node, *atime, mtime)
            }
            Operation::SetXattr { path, name, flags } => {
                let node = self.node(path)?;
                let flags = if again { 0 } else { *flags };
                let flags = XattrFlags::from_bits_retain(flags);
                rustix::fs::setxattr(at(&node), &*name.0, &step.data, flags)
                    .map_err(told("set its attribute"))
            }
            Operation::RemoveXattr { path, name } => {
                let node = self.node(path)?;
                let gone = rustix::fs::removexattr(at(&node), &*name.0);
                done(gone, again.then_some(Errno::NODATA), "remove its attribute")
            }
            Operation::Allocate { path, mode, offset, length } => {
                let file = self.file(path)?;
                let flags = FallocateFlags::from_bits_retain(*mode);
                rustix::fs::fallocate(&file, flags, *offset, *length)
                    .map_err(told("allocate its room"))?;
                set_mtime(&file, time)
            }
            Operation::Copy { from, from_offset, path, offset, length } => {
                self.copy((from, *from_offset), (path, *offset), *length, time)
            }
            Operation::Unknown { what } => Err(format!(
                "it cannot be done by its path, which is not known: {}; do it by hand, if it can be, and leave it out",
                what.escape_debug()
            )),
        }
    }

    fn create(
        &self,
        step: &Step,
        path: &Text,
        mode: u32,
        truncate: bool,
        again: bool,
    ) -> Outcome<()> {
        let (dir, name) = self.parent(path)?;
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK;
        match rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(mode)) {
            Ok(_) => {}
            Err(Errno::EXIST) if again || truncate => {
                let file = self.file(path)?;
                if truncate {
                    rustix::fs::ftruncate(&file, 0).map_err(told("set its length"))?;
                }
            }
            Err(why) => return Err(told("create it")(why)),
        }
        self.own(step, path, FileType::RegularFile, Some(mode))?;
        set_mtime(&dir, Nanoseconds::from(step.time))
    }

    fn rename(
        &self,
        from: &Text,
        path: &Text,
        flags: RenameFlags,
        again: bool,
        time: Nanoseconds,
    ) -> Outcome<()> {
        if again && flags.contains(RenameFlags::EXCHANGE) {
            return Err("it was begun before, and cannot be told to have been done: look which of the two is \
                        which, then leave it out (`--skip`), or swap them back and leave it out"
                .to_owned());
        }
        let ((old, old_name), (dir, name)) = (self.parent(from)?, self.parent(path)?);
        let moved = if flags.is_empty() {
            rustix::fs::renameat(&old, old_name, &dir, name)
        } else {
            rustix::fs::renameat_with(&old, old_name, &dir, name, flags)
        };
        // Nothing came in between: what is not there any more is where it was to go.
        done(moved, again.then_some(Errno::NOENT), "rename it")?;
        set_mtime(&old, time)?;
        set_mtime(&dir, time)
    }

    fn copy(
        &self,
        (from, mut from_offset): (&Text, u64),
        (to, mut to_offset): (&Text, u64),
        length: u64,
        time: Nanoseconds,
    ) -> Outcome<()> {
        let (source, file) = (self.open_below(from, OFlags::RDONLY)?, self.file(to)?);
        let mut left = length;
        while left > 0 {
            let most = usize::try_from(left.min(1 << 20)).unwrap_or(1 << 20);
            let mut bytes = vec![0; most];
            let got = rustix::io::pread(&source, &mut bytes, from_offset)
                .map_err(told("read what is copied"))?;
            let Some(bytes) = bytes.get(..got).filter(|bytes| !bytes.is_empty()) else { break };
            let put = rustix::io::pwrite(&file, bytes, to_offset).map_err(told("write"))?;
            if put == 0 {
                return Err("not all was copied".to_owned());
            }
            from_offset = from_offset
                .checked_add(put as u64)
                .ok_or("its place is beyond the end of any file")?;
            to_offset = to_offset
                .checked_add(put as u64)
                .ok_or("its place is beyond the end of any file")?;
            left -= put as u64;
        }
        set_mtime(&file, time)
    }

    /// The directory that a path is in, and its name there.
    fn parent<'a>(&self, path: &'a Text) -> Outcome<(OwnedFd, &'a OsStr)> {
        let (dir, name) = match path.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => path.0.split_at(at),
            None => (&[][..], &path.0[..]),
        };
        let name = name.strip_prefix(b"/").unwrap_or(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.below(dir, flags).map_err(told("open its directory"))?;
        Ok((dir, OsStr::from_bytes(name)))
    }

    fn below(&self, path: &[u8], flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, OsStr::from_bytes(path), flags, Mode::empty(), resolve)
    }

    /// What is at `path`, to look at and to change its attributes; of a link, itself.
    fn node(&self, path: &Text) -> Outcome<OwnedFd> {
        let Some(name) = path.names().last() else {
            return self.below(b"", OFlags::RDONLY).map_err(told("open it"));
        };
        let (dir, _) = self.parent(path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&dir, OsStr::from_bytes(name), flags, Mode::empty())
            .map_err(told("open it"))
    }

    /// A file to write to.
    fn file(&self, path: &Text) -> Outcome<OwnedFd> {
        self.open_below(path, OFlags::WRONLY)
    }

    fn open_below(&self, path: &Text, access: OFlags) -> Outcome<OwnedFd> {
        // Of anything but a file, opening could wait or have effects.
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let node = self.node(path)?;
        let stat = rustix::fs::fstat(&node).map_err(told("look at it"))?;
        if kind(&stat) != FileType::RegularFile {
            return Err("what is at its path is no regular file".to_owned());
        }
        self.below(&path.0, flags).map_err(told("open it"))
    }

    /// Gives what was made to its owner, with its mode and time.
    fn own(&self, step: &Step, path: &Text, wanted: FileType, mode: Option<u32>) -> Outcome<()> {
        let node = self.node(path)?;
        let stat = rustix::fs::fstat(&node).map_err(told("look at it"))?;
        if kind(&stat) != wanted {
            return Err("there is something of another type at its path".to_owned());
        }
        let (dir, _) = self.parent(path)?;
        let parent = rustix::fs::fstat(&dir).map_err(told("look at it"))?;
        // In such a directory it has the directory's group.
        let gid = if parent.st_mode & 0o2000 != 0 { stat.st_gid } else { step.gid };
        if (stat.st_uid, stat.st_gid) != (step.uid, gid) {
            chown(&node, Some(step.uid), Some(gid))?;
        }
        let now = rustix::fs::fstat(&node).map_err(told("look at it"))?;
        if let Some(mode) = mode.filter(|mode| now.st_mode & NOBODY_ELSE != *mode) {
            chmod(&node, mode)?;
        }
        let time = Some(Nanoseconds::from(step.time));
        set_times(&node, time, time)
    }
}

/// Whether a call went well, or failed as one does that is made again.
fn done(
    result: std::result::Result<(), Errno>,
    tolerated: Option<Errno>,
    what: &str,
) -> Outcome<()> {
    match result {
        Err(why) if Some(why) == tolerated => Ok(()),
        other => other.map_err(told(what)),
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A name for what a descriptor is open on that leads there and nowhere else.
fn at(node: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", node.as_raw_fd())
}
