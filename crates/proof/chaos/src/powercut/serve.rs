//! The disk as a mounted folder, in which belay's image and journal lie, and the power switch.
//!
//! Nothing of it is cached by the kernel: what a process writes there arrives here at once, and is
//! durable when the process has synced it. When the power is off, everything fails. So the instant
//! of a power failure is that of one change of the disk, whatever the processes do until they are
//! killed.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use super::disk::{Disk, Op};

const ROOT: u64 = 1;
/// Nothing is remembered by the kernel.
const TTL: Duration = Duration::ZERO;

/// Changes of a disk, in their order.
pub type Changes = Vec<(Op, SystemTime)>;

/// The disk with its switch.
#[derive(Debug, Default)]
pub struct Power {
    state: Mutex<State>,
    news: Condvar,
    /// It says that it has made things durable, and has not: to see whether that is noticed.
    lies: bool,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    on: bool,
    /// The power goes at this change, from 0 on since it was switched on.
    cut_at: Option<usize>,
    /// All changes since then.
    log: Changes,
}

impl Power {
    /// A disk that tells the truth about what is durable, or does not.
    pub fn new(lies: bool) -> Self {
        Self { lies, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches it on, on this disk; it goes off at change number `cut_at`.
    pub fn on(&self, disk: Disk, cut_at: Option<usize>) {
        *self.lock() = State { disk, on: true, cut_at, log: vec![] };
    }

    /// Has it go off after so many changes more.
    pub fn cut_in(&self, changes: usize) {
        let mut state = self.lock();
        state.cut_at = Some(state.log.len() + changes);
    }

    /// Switches it off. Gives the disk as processes have seen it.
    pub fn cut(&self) -> Disk {
        let mut state = self.lock();
        state.on = false;
        state.log.clear();
        state.disk.clone()
    }

    /// The same, with all changes that it has seen.
    pub fn off(&self) -> (Disk, Changes) {
        let mut state = self.lock();
        state.on = false;
        (state.disk.clone(), state.log.clone())
    }

    /// Whether it is on, and how many changes there were.
    pub fn changes(&self) -> (bool, usize) {
        let state = self.lock();
        (state.on, state.log.len())
    }

    /// Waits until it is off, at most so long; says whether it is.
    pub fn wait_off(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while state.on {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Mounts the disk; it is unmounted when what this gives is dropped.
    pub fn mount(self: &Arc<Self>, mountpoint: &Path) -> Result<BackgroundSession> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("powercut".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        fuser::spawn_mount(Served(Arc::clone(self)), mountpoint, &config)
            .with_context(|| format!("mounting a disk on {}", mountpoint.display()))
    }

    fn change(&self, make: impl FnOnce(&Disk) -> Op) -> Result<(), Errno> {
        let mut state = self.lock();
        if !state.on {
            return Err(Errno::EIO);
        }
        let op = make(&state.disk);
        let now = SystemTime::now();
        if state.cut_at == Some(state.log.len()) {
            state.on = false;
            // What is being written may be there or not; a sync that did not end has done nothing
            // for sure.
            if !matches!(op, Op::Sync(_) | Op::SyncNames) {
                state.disk.apply(&op, now);
            }
            self.news.notify_all();
            return Err(Errno::EIO);
        }
        if self.lies && matches!(op, Op::Sync(_)) {
            return Ok(());
        }
        state.disk.apply(&op, now);
        state.log.push((op, now));
        Ok(())
    }

    fn attr(&self, inode: u64) -> Result<FileAttr, Errno> {
        let state = self.lock();
        if !state.on {
            return Err(Errno::EIO);
        }
        if inode == ROOT {
            return Ok(attr(ROOT, FileType::Directory, 0, SystemTime::UNIX_EPOCH));
        }
        let content = state.disk.content(inode).ok_or(Errno::ENOENT)?;
        Ok(attr(inode, FileType::RegularFile, content.bytes.len() as u64, content.modified))
    }
}

fn attr(inode: u64, kind: FileType, size: u64, time: SystemTime) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size,
        blocks: size.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: if kind == FileType::Directory { 0o700 } else { 0o600 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// What the kernel asks.
struct Served(Arc<Power>);

impl Served {
    fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
        match result {
            Ok(()) => reply.ok(),
            Err(why) => reply.error(why),
        }
    }
}

fn text(name: &OsStr) -> Result<String, Errno> {
    name.to_str().map(str::to_owned).ok_or(Errno::EINVAL)
}

impl Filesystem for Served {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = text(name).and_then(|name| self.0.lock().disk.find(&name).ok_or(Errno::ENOENT));
        match found.and_then(|inode| self.0.attr(inode)) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(why) => reply.error(why),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attr(ino.0) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(why) => reply.error(why),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = match size {
            Some(size) => self.0.change(|_| Op::Length(ino.0, size as usize)),
            None => Ok(()),
        };
        match done.and_then(|()| self.0.attr(ino.0)) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(why) => reply.error(why),
        }
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut inode = 0;
        let made = text(name).and_then(|name| {
            self.0.change(|disk| {
                inode = disk.free_inode();
                Op::Name(name, Some(inode))
            })
        });
        match made.and_then(|()| self.0.attr(inode)) {
            Ok(attr) => reply.created(
                &TTL,
                &attr,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO,
            ),
            Err(why) => reply.error(why),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.0.lock();
        if !state.on {
            return reply.error(Errno::EIO);
        }
        match state.disk.content(ino.0) {
            Some(content) => reply.data(&content.bytes.read(offset as usize, size as usize)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.change(|_| Op::Write(ino.0, offset as usize, data.to_vec())) {
            Ok(()) => reply.written(data.len() as u32),
            Err(why) => reply.error(why),
        }
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::empty(reply, text(name).and_then(|name| self.0.change(|_| Op::Name(name, None))));
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        Self::empty(reply, self.0.change(|_| Op::Sync(ino.0)));
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        Self::empty(reply, self.0.change(|_| Op::SyncNames));
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = self.0.lock();
        for (i, (name, inode)) in state.disk.names().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(inode), i as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
