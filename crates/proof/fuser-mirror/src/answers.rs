//! The kernel's requests, one function for each.

use crate::mirror::{Mirror, Open, Wish};
use crate::nodes::errno;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, RenameFlags as Flags, SeekFrom, XattrFlags};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Nothing is kept by the kernel, so that everything asks this daemon.
const TTL: Duration = Duration::ZERO;
const SAME: Generation = Generation(0);

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
        let target = self.nodes.pinned(node).and_then(|pinned| {
            rustix::fs::readlinkat(pinned.as_fd(), "", Vec::new()).map_err(errno)
        });
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
        answer!(reply, self.remove(parent, name, AtFlags::empty()), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.remove(parent, name, AtFlags::REMOVEDIR), () => reply.ok());
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
        let moved = self.nodes.pinned(parent).and_then(|from| {
            let to = self.nodes.pinned(to)?;
            let done = rustix::fs::renameat_with(from.as_fd(), name, to.as_fd(), new_name, flags);
            done.map_err(errno)
        });
        answer!(reply, moved, () => reply.ok());
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.nodes.path(node).and_then(|(_pinned, path)| {
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
        answer!(reply, self.read_file(handle, offset, size), data => reply.data(&data));
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
        self.close(handle);
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
        self.close(handle);
        reply.ok();
    }

    fn statfs(&self, _: &Request, node: INodeNo, reply: ReplyStatfs) {
        let found = self
            .nodes
            .pinned(node)
            .and_then(|pinned| rustix::fs::fstatvfs(pinned.as_fd()).map_err(errno));
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
        let done = self.at(node, |path| rustix::fs::setxattr(path, name, value, flags));
        answer!(reply, done, () => reply.ok());
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.attributes(node, |path, room| rustix::fs::getxattr(path, name, room));
        answer!(reply, value, value => give(&value, size, reply));
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let list = self.attributes(node, |path, room| rustix::fs::listxattr(path, room));
        answer!(reply, list, list => give(&list, size, reply));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.at(node, |path| rustix::fs::removexattr(path, name));
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
