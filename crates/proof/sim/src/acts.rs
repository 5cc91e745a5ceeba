//! The operations of an application, system call by system call.

use super::client::{Client, File, Stream};
use super::disk::*;
use super::kernel::read;
use super::ops::*;
use belay_wire::abi::*;
use belay_wire::{EntryOut, Opcode, OpenOut};
use zerocopy::IntoBytes;

impl Client {
    /// Carries out an operation.
    pub async fn run(&mut self, op: &Op) -> Given {
        let given = self.act(op).await;
        for nodeid in self.held.take() {
            self.kernel.borrow_mut().put(nodeid);
        }
        given
    }

    async fn act(&mut self, op: &Op) -> Given {
        let unit = Ok(Value::Unit);
        match op {
            Op::Create { path, flags, mode, fd } => {
                if self.files.contains_key(fd) {
                    return Err(EBADF);
                }
                let (dir, name) = self.parent(path).await?;
                match self.lookup(dir, name).await {
                    Ok(_) if flags & O_EXCL != 0 => return Err(EEXIST),
                    Ok(found) => return self.open(found, *flags, *fd).await,
                    Err(ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                let head = CreateIn { flags: *flags, mode: REG | mode, ..CreateIn::default() };
                let parts = [head.as_bytes(), name, b"\0"];
                let body = self.entry(Opcode::CREATE, dir, name, &parts).await?;
                let nodeid = read::<EntryOut>(&body).nodeid;
                let file = self.opened(*fd, nodeid, read::<OpenOut>(&body[128..]).fh, *flags);
                self.node(nodeid, Some(&file)).await
            }
            Op::Open { path, flags, fd } => {
                if self.files.contains_key(fd) {
                    return Err(EBADF);
                }
                let node = self.walk(path).await?;
                if self.kind(node) == 4 && flags & 3 == 0 {
                    return Err(EISDIR);
                }
                self.open(node, *flags, *fd).await
            }
            Op::Close(fd) => {
                let file = self.files.remove(fd).ok_or(EBADF)?;
                for lock_owner in 0..3 {
                    let body = FlushIn { fh: file.fh, lock_owner, ..FlushIn::default() };
                    self.call(Opcode::FLUSH, file.nodeid, &[body.as_bytes()]).await?;
                }
                self.release(&file).await;
                unit
            }
            Op::Read { fd, at, len } => {
                let file = self.file(*fd)?;
                if file.flags & 3 == 1 {
                    return Err(EBADF);
                }
                let (offset, size) = (*at as u64, *len as u32);
                let body = ReadIn { fh: file.fh, offset, size, ..ReadIn::default() };
                self.call(Opcode::READ, file.nodeid, &[body.as_bytes()]).await.map(Value::Bytes)
            }
            Op::Write { fd, at, data } => {
                let file = self.file(*fd)?;
                if file.flags & 3 == 0 || file.flags & O_APPEND != 0 {
                    return Err(EBADF);
                }
                self.write(&file, *at as u64, data).await
            }
            Op::Append { fd, data } => {
                let file = self.file(*fd)?;
                if file.flags & 3 == 0 || file.flags & O_APPEND == 0 {
                    return Err(EBADF);
                }
                let size = self.attr(file.nodeid, None).await?.size;
                self.write(&file, size, data).await
            }
            Op::Mkdir(path) => {
                let head = MkdirIn { mode: 0o755, umask: 0 };
                self.make(Opcode::MKDIR, path, head.as_bytes(), b"").await
            }
            Op::Mknod(path) => {
                let head = MknodIn { mode: FIFO | 0o644, ..MknodIn::default() };
                self.make(Opcode::MKNOD, path, head.as_bytes(), b"").await
            }
            Op::Symlink(path, target) => {
                let tail = [target.as_bytes(), b"\0"].concat();
                self.make(Opcode::SYMLINK, path, b"", &tail).await
            }
            Op::Readlink(path) => {
                let node = self.walk(path).await?;
                if self.kind(node) != 10 {
                    return Err(EINVAL);
                }
                self.call(Opcode::READLINK, node, &[]).await.map(Value::Bytes)
            }
            Op::Link(old, new) => {
                let node = self.walk(old).await?;
                let (dir, name) = self.parent(new).await?;
                if self.kind(node) == 4 {
                    return Err(EPERM);
                }
                match self.lookup(dir, name).await {
                    Ok(_) => return Err(EEXIST),
                    Err(ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                let head = LinkIn { oldnodeid: node };
                let parts = [head.as_bytes(), name, b"\0"];
                let body = self.entry(Opcode::LINK, dir, name, &parts).await?;
                let linked = read::<EntryOut>(&body).nodeid;
                assert_eq!(linked, node, "kernel: a link is another node");
                self.node(node, None).await
            }
            Op::Unlink(path) | Op::Rmdir(path) => {
                let (dir, name) = self.parent(path).await?;
                let node = self.lookup(dir, name).await?;
                let rmdir = matches!(op, Op::Rmdir(_));
                let opcode = match (rmdir, self.kind(node) == 4) {
                    (true, false) => return Err(ENOTDIR),
                    (false, true) => return Err(EISDIR),
                    (true, true) => Opcode::RMDIR,
                    (false, false) => Opcode::UNLINK,
                };
                self.call(opcode, dir, &[name, b"\0"]).await?;
                let mut kernel = self.kernel.borrow_mut();
                kernel.inodes.get_mut(&node).unwrap().dead = rmdir;
                kernel.unhash(dir, name);
                unit
            }
            Op::Rename(old, new, flags) => self.rename(old, new, *flags).await,
            Op::Stat(path) => {
                let node = self.walk(path).await?;
                self.node(node, None).await
            }
            Op::Fstat(fd) => {
                let file = self.file(*fd)?;
                self.node(file.nodeid, Some(&file)).await
            }
            Op::Chmod(path, mode) => {
                let node = self.walk(path).await?;
                if self.kind(node) == 8 {
                    let body =
                        SetattrIn { valid: SetattrValid::MODE, mode: *mode, ..Default::default() };
                    self.call(Opcode::SETATTR, node, &[body.as_bytes()]).await?;
                }
                self.node(node, None).await
            }
            Op::Truncate(path, size) => {
                let node = self.walk(path).await?;
                if self.kind(node) != 8 {
                    return Err(EINVAL);
                }
                self.set_size(node, *size, None).await?;
                self.node(node, None).await
            }
            Op::Ftruncate(fd, size) => {
                let file = self.file(*fd)?;
                self.set_size(file.nodeid, *size, Some(&file)).await?;
                self.node(file.nodeid, Some(&file)).await
            }
            Op::SetXattr { path, name, value, flags } => {
                let node = self.walk(path).await?;
                let head = SetxattrInShort { size: value.len() as u32, flags: *flags };
                let parts = [head.as_bytes(), name.as_bytes(), b"\0", value.as_bytes()];
                self.call(Opcode::SETXATTR, node, &parts).await.map(|_| Value::Unit)
            }
            Op::GetXattr(path, name) => {
                let node = self.walk(path).await?;
                let head = GetxattrIn { size: 100, padding: 0 };
                let parts = [head.as_bytes(), name.as_bytes(), b"\0"];
                self.call(Opcode::GETXATTR, node, &parts).await.map(Value::Bytes)
            }
            Op::RemoveXattr(path, name) => {
                let node = self.walk(path).await?;
                let parts = [name.as_bytes(), b"\0"];
                self.call(Opcode::REMOVEXATTR, node, &parts).await.map(|_| Value::Unit)
            }
            Op::Opendir(path, dd) => {
                if self.streams.contains_key(dd) {
                    return Err(EBADF);
                }
                let node = self.walk(path).await?;
                if self.kind(node) != 4 {
                    return Err(ENOTDIR);
                }
                let body = OpenIn::default();
                let out = self.call(Opcode::OPENDIR, node, &[body.as_bytes()]).await?;
                self.kernel.borrow_mut().hold(node);
                let fh = read::<OpenOut>(&out).fh;
                let stream =
                    Stream { nodeid: node, fh, cookie: 0, names: Vec::new(), ended: false };
                self.streams.insert(*dd, stream);
                unit
            }
            Op::List { dd, room, take, plus } => {
                self.list(*dd, *room, *take, *plus).await.map(|()| Value::Unit)
            }
            Op::ListRest { dd, room, plus } => {
                if let Some(stream) = self.streams.get_mut(dd) {
                    stream.ended = false;
                }
                while self.streams.get(dd).is_none_or(|stream| !stream.ended) {
                    self.list(*dd, *room, usize::MAX, *plus).await?;
                }
                Ok(Value::Names(self.streams[dd].names.clone()))
            }
            Op::Rewind(dd) => {
                let stream = self.streams.get_mut(dd).ok_or(EBADF)?;
                (stream.cookie, stream.ended) = (0, false);
                stream.names.clear();
                unit
            }
            Op::Closedir(dd) => {
                let stream = self.streams.remove(dd).ok_or(EBADF)?;
                let body = ReleaseIn { fh: stream.fh, ..ReleaseIn::default() };
                let mut kernel = self.kernel.borrow_mut();
                kernel.issue_background(Opcode::RELEASEDIR, stream.nodeid, &[body.as_bytes()]);
                unit
            }
            Op::Lock { fd, owner, start, end, kind, wait } => {
                let file = self.file(*fd)?;
                let opcode = if *wait { Opcode::SETLKW } else { Opcode::SETLK };
                self.lock(&file, opcode, *owner, (*start, *end), *kind, 0).await
            }
            Op::Fsync(fd) => {
                let file = self.file(*fd)?;
                let body = FsyncIn { fh: file.fh, ..FsyncIn::default() };
                self.call(Opcode::FSYNC, file.nodeid, &[body.as_bytes()]).await?;
                unit
            }
            Op::Flock { fd, kind } => {
                let file = self.file(*fd)?;
                self.files.insert(*fd, File { flocked: true, ..file });
                let all = (0, i64::MAX as u64);
                self.lock(&file, Opcode::SETLK, file.serial, all, *kind, LK_FLOCK).await
            }
            Op::Poll(fd) => {
                let file = self.file(*fd)?;
                let flags = POLL_SCHEDULE_NOTIFY;
                let body = PollIn { fh: file.fh, kh: file.serial, flags, events: 1 };
                let out = self.call(Opcode::POLL, file.nodeid, &[body.as_bytes()]).await?;
                Ok(Value::Bytes(vec![read::<PollOut>(&out).revents as u8]))
            }
            Op::Shrink(percent) => {
                self.kernel.borrow_mut().shrink(*percent);
                unit
            }
        }
    }
}
