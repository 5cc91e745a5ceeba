//! A daemon for tests: shows a folder, and what is done on the mount is done there. It is written with the crate `fuser`, which speaks
//! to the kernel without a library in C, so that it can be linked statically (`scripts/setup-zoo` does that, with musl).
//!
//! Usage: `belay-fuser-mirror FOLDER MOUNTPOINT`
#![forbid(unsafe_code)]

mod nodes;

use anyhow::{Context, Result, bail};
use fuser::{
    BsdFileFlags, Config, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};
use nodes::{Nodes, errno};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags as Flags, SeekFrom, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Nothing is kept by the kernel, so that everything asks this daemon.
const TTL: Duration = Duration::ZERO;
const SAME: Generation = Generation(0);
/// Longest value or list of extended attributes.
const LONGEST: usize = 64 << 10;

/// What is open.
#[derive(Debug)]
enum Open {
    File(File),
    Folder(Vec<(u64, FileType, Vec<u8>)>),
}

#[derive(Debug)]
struct Mirror {
    nodes: Nodes,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    next: AtomicU64,
}

impl Mirror {
    fn opened(&self) -> MutexGuard<'_, HashMap<u64, Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, what: Open) -> FileHandle {
        let number = self.next.fetch_add(1, Relaxed);
        self.opened().insert(number, Arc::new(what));
        FileHandle(number)
    }

    fn handle(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        self.opened().get(&handle.0).map(Arc::clone).ok_or(Errno::EBADF)
    }

    fn with_file<T>(
        &self,
        handle: FileHandle,
        work: impl FnOnce(&File) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match &*self.handle(handle)? {
            Open::File(file) => work(file),
            Open::Folder(_) => Err(Errno::EISDIR),
        }
    }

    fn open_node(&self, node: INodeNo, flags: i32) -> Result<FileHandle, Errno> {
        let kept = flags & !(libc::O_NOFOLLOW | libc::O_CREAT | libc::O_EXCL);
        let (_place, path) = self.nodes.path(node)?;
        let flags = OFlags::from_bits_retain(kept.cast_unsigned()) | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        Ok(self.keep(Open::File(file.into())))
    }

    /// Does something to a name in a folder, and looks it up.
    fn make(
        &self,
        parent: INodeNo,
        name: &OsStr,
        work: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<()>,
    ) -> Result<FileAttr, Errno> {
        work(self.nodes.place(parent)?.as_fd()).map_err(errno)?;
        self.nodes.look_up(parent, name)
    }

    fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle), Errno> {
        let flags = OFlags::from_bits_retain((flags & !libc::O_NOFOLLOW).cast_unsigned());
        let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
        let parent_place = self.nodes.place(parent)?;
        let file = rustix::fs::openat(parent_place.as_fd(), name, flags, Mode::from_raw_mode(mode));
        let file = file.map_err(errno)?;
        let attr = self.nodes.look_up(parent, name)?;
        Ok((attr, self.keep(Open::File(file.into()))))
    }

    fn change(&self, node: INodeNo, wish: &Wish) -> Result<FileAttr, Errno> {
        let (place, path) = self.nodes.path(node)?;
        if let Some(mode) = wish.mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode & 0o7777)).map_err(errno)?;
        }
        if wish.uid.is_some() || wish.gid.is_some() {
            let (uid, gid) = (wish.uid.map(Uid::from_raw), wish.gid.map(Gid::from_raw));
            rustix::fs::chownat(place.as_fd(), "", uid, gid, AtFlags::EMPTY_PATH).map_err(errno)?;
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
struct Wish {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
    handle: Option<FileHandle>,
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

/// Answers with what is there, or with the error.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

impl Filesystem for Mirror {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.nodes.look_up(parent, name), attr => reply.entry(&TTL, &attr, SAME));
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.nodes.forget(node, lookups);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.nodes.attr(node), attr => reply.attr(&TTL, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wish = Wish { mode, uid, gid, size, atime, mtime, handle };
        answer!(reply, self.change(node, &wish), attr => reply.attr(&TTL, &attr));
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let target = self
            .nodes
            .place(node)
            .and_then(|place| rustix::fs::readlinkat(place.as_fd(), "", Vec::new()).map_err(errno));
        answer!(reply, target, target => reply.data(target.to_bytes()));
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let made = self.make(parent, name, |folder| {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mknodat(folder, name, kind, mode, device.into())
        });
        answer!(reply, made, attr => reply.entry(&TTL, &attr, SAME));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, |folder| {
            rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(mode))
        });
        answer!(reply, made, attr => reply.entry(&TTL, &attr, SAME));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.nodes.place(parent).and_then(|folder| {
            rustix::fs::unlinkat(folder.as_fd(), name, AtFlags::empty()).map_err(errno)
        });
        answer!(reply, gone, () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.nodes.place(parent).and_then(|folder| {
            rustix::fs::unlinkat(folder.as_fd(), name, AtFlags::REMOVEDIR).map_err(errno)
        });
        answer!(reply, gone, () => reply.ok());
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make(parent, name, |folder| rustix::fs::symlinkat(target, folder, name));
        answer!(reply, made, attr => reply.entry(&TTL, &attr, SAME));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = Flags::from_bits_retain(flags.bits());
        let moved = self.nodes.place(parent).and_then(|from| {
            let to = self.nodes.place(to)?;
            let done = rustix::fs::renameat_with(from.as_fd(), name, to.as_fd(), new_name, flags);
            done.map_err(errno)
        });
        answer!(reply, moved, () => reply.ok());
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.nodes.path(node).and_then(|(_place, path)| {
            self.make(parent, name, |folder| {
                rustix::fs::linkat(CWD, &path, folder, name, AtFlags::SYMLINK_FOLLOW)
            })
        });
        answer!(reply, made, attr => reply.entry(&TTL, &attr, SAME));
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.open_node(node, flags.0);
        answer!(reply, opened, handle => reply.opened(handle, FopenFlags::empty()));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.create_file(parent, name, mode, flags);
        answer!(reply, made, (attr, handle) => {
            reply.created(&TTL, &attr, SAME, handle, FopenFlags::empty());
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let data = self.with_file(handle, |file| {
            let (mut data, mut filled) = (vec![0; size as usize], 0);
            while let Some(room) = data.get_mut(filled..).filter(|room| !room.is_empty()) {
                match file.read_at(room, offset + filled as u64)? {
                    0 => break,
                    got => filled += got,
                }
            }
            data.truncate(filled);
            Ok(data)
        });
        answer!(reply, data, data => reply.data(&data));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // One that was opened to append appends, whatever the offset is.
        let done = self.with_file(handle, |file| Ok(file.write_at(data, offset)?));
        answer!(reply, done, done => reply.written(u32::try_from(done).unwrap_or(u32::MAX)));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.opened().remove(&handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.with_file(handle, |file| {
            Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
        });
        answer!(reply, done, () => reply.ok());
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let list = self.nodes.list(node);
        answer!(reply, list, list => {
            reply.opened(self.keep(Open::Folder(list)), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let open = match self.handle(handle) {
            Ok(open) => open,
            Err(error) => return reply.error(error),
        };
        let Open::Folder(list) = &*open else { return reply.error(Errno::ENOTDIR) };
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (number, kind, name)) in list.iter().enumerate().skip(skipped) {
            if reply.add(INodeNo(*number), at as u64 + 1, *kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.opened().remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        let found = self
            .nodes
            .place(node)
            .and_then(|place| rustix::fs::fstatvfs(place.as_fd()).map_err(errno));
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        answer!(reply, found, s => reply.statfs(
            s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree,
            short(s.f_bsize), short(s.f_namemax), short(s.f_frsize),
        ));
    }

    fn setxattr(
        &self,
        _: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let done = self.nodes.path(node).and_then(|(_place, path)| {
            rustix::fs::setxattr(path, name, value, flags).map_err(errno)
        });
        answer!(reply, done, () => reply.ok());
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.nodes.path(node).and_then(|(_place, path)| {
            let mut value = vec![0; LONGEST];
            let length = rustix::fs::getxattr(path, name, value.as_mut_slice()).map_err(errno)?;
            value.truncate(length);
            Ok(value)
        });
        answer!(reply, value, value => give(&value, size, reply));
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let list = self.nodes.path(node).and_then(|(_place, path)| {
            let mut list = vec![0; LONGEST];
            let length = rustix::fs::listxattr(path, list.as_mut_slice()).map_err(errno)?;
            list.truncate(length);
            Ok(list)
        });
        answer!(reply, list, list => give(&list, size, reply));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self
            .nodes
            .path(node)
            .and_then(|(_place, path)| rustix::fs::removexattr(path, name).map_err(errno));
        answer!(reply, done, () => reply.ok());
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = self.with_file(handle, |file| {
            rustix::fs::fallocate(file, mode, offset, length).map_err(errno)
        });
        answer!(reply, done, () => reply.ok());
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let from = u64::try_from(offset).unwrap_or(u64::MAX);
        let found = self.with_file(handle, |file| {
            let to = match whence {
                libc::SEEK_DATA => SeekFrom::Data(from),
                libc::SEEK_HOLE => SeekFrom::Hole(from),
                _ => return Err(Errno::EINVAL),
            };
            rustix::fs::seek(file, to).map_err(errno)
        });
        answer!(reply, found, found => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        from: FileHandle,
        mut from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        mut to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let done = self.with_file(from, |from| {
            self.with_file(to, |to| {
                let (source, target) = (Some(&mut from_offset), Some(&mut to_offset));
                rustix::fs::copy_file_range(from, source, to, target, length).map_err(errno)
            })
        });
        answer!(reply, done, done => reply.written(u32::try_from(done).unwrap_or(u32::MAX)));
    }
}

/// A value of an extended attribute, or how long it is.
fn give(value: &[u8], size: u32, reply: ReplyXattr) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    match size {
        0 => reply.size(length),
        size if length > size => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder, mountpoint] = words.as_slice() else {
        bail!("usage: belay-fuser-mirror FOLDER MOUNTPOINT");
    };
    // The kernel has applied the caller's.
    rustix::process::umask(Mode::empty());
    let nodes =
        Nodes::new(Path::new(folder)).with_context(|| format!("opening {}", folder.display()))?;
    let mirror = Mirror { nodes, open: Mutex::default(), next: AtomicU64::new(1) };
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("belay-fuser-mirror".into()), MountOption::DefaultPermissions];
    config.n_threads = Some(4);
    if rustix::process::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    fuser::mount(mirror, mountpoint, &config).context("serving the mount")
}
