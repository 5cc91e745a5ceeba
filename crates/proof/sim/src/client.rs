//! An application and the kernel's half of its system calls.

use super::disk::*;
use super::kernel::{Kernel, read};
use super::ops::*;
use belay_wire::abi::*;
use belay_wire::{Dirents, DirentsPlus, EntryOut, Opcode, OpenOut};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use zerocopy::IntoBytes;

#[derive(Clone, Copy)]
pub(super) struct File {
    pub(super) nodeid: u64,
    pub(super) fh: u64,
    pub(super) flags: u32,
    pub(super) serial: u64,
    pub(super) flocked: bool,
}

pub(super) struct Stream {
    pub(super) nodeid: u64,
    pub(super) fh: u64,
    pub(super) cookie: u64,
    pub(super) names: Vec<Vec<u8>>,
    pub(super) ended: bool,
}

pub struct Client {
    pub(super) kernel: Rc<RefCell<Kernel>>,
    id: u64,
    pub(super) files: BTreeMap<usize, File>,
    pub(super) streams: BTreeMap<usize, Stream>,
    /// Nodes that the system call under way holds.
    pub(super) held: RefCell<Vec<u64>>,
    serial: Cell<u64>,
}

impl Client {
    pub fn new(kernel: Rc<RefCell<Kernel>>, id: u64) -> Self {
        Self {
            kernel,
            id,
            files: BTreeMap::new(),
            streams: BTreeMap::new(),
            held: RefCell::new(Vec::new()),
            serial: Cell::new(0),
        }
    }

    pub(super) async fn call(&self, opcode: Opcode, nodeid: u64, parts: &[&[u8]]) -> Res<Vec<u8>> {
        let unique = self.kernel.borrow_mut().issue(opcode, nodeid, parts);
        let reply = std::future::poll_fn(|_| match self.kernel.borrow_mut().take_reply(unique) {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        })
        .await;
        let header: OutHeader = read(&reply);
        if header.error != 0 { Err(-header.error) } else { Ok(reply[16..].to_vec()) }
    }

    /// Like [`Self::call`], for requests that an entry answers, which gets its dentry.
    pub(super) async fn entry(
        &self,
        opcode: Opcode,
        dir: u64,
        name: &[u8],
        parts: &[&[u8]],
    ) -> Res<Vec<u8>> {
        let body = self.call(opcode, dir, parts).await?;
        let entry: EntryOut = read(&body);
        if entry.nodeid == 0 {
            return Err(ENOENT);
        }
        self.held.borrow_mut().push(entry.nodeid);
        self.kernel.borrow_mut().splice(dir, name, entry.nodeid);
        Ok(body)
    }

    pub(super) async fn lookup(&self, dir: u64, name: &[u8]) -> Res<u64> {
        {
            let mut kernel = self.kernel.borrow_mut();
            if kernel.inodes[&dir].kind != 4 {
                return Err(ENOTDIR);
            }
            let known = kernel.dentries.get(&(dir, name.to_vec())).copied();
            if let Some(nodeid) = known
                && kernel.rng.chance(50)
            {
                kernel.hold(nodeid);
                self.held.borrow_mut().push(nodeid);
                return Ok(nodeid);
            }
        }
        match self.entry(Opcode::LOOKUP, dir, name, &[name, b"\0"]).await {
            Ok(body) => Ok(read::<EntryOut>(&body).nodeid),
            Err(errno) => {
                let known = self.kernel.borrow().dentries.contains_key(&(dir, name.to_vec()));
                let name = String::from_utf8_lossy(name);
                assert!(!known, "kernel: {name} is gone: errno {errno}");
                Err(errno)
            }
        }
    }

    pub(super) async fn walk(&self, path: &str) -> Res<u64> {
        let mut node = ROOT_ID;
        for name in path.split('/') {
            node = self.lookup(node, name.as_bytes()).await?;
        }
        Ok(node)
    }

    pub(super) async fn parent<'a>(&self, path: &'a str) -> Res<(u64, &'a [u8])> {
        let Some((dir, name)) = path.rsplit_once('/') else {
            return Ok((ROOT_ID, path.as_bytes()));
        };
        let dir = self.walk(dir).await?;
        let kind = self.kernel.borrow().inodes[&dir].kind;
        if kind == 4 { Ok((dir, name.as_bytes())) } else { Err(ENOTDIR) }
    }

    /// The parent of a name that is to be made.
    pub(super) async fn absent<'a>(&self, path: &'a str) -> Res<(u64, &'a [u8])> {
        let (dir, name) = self.parent(path).await?;
        match self.lookup(dir, name).await {
            Ok(_) => Err(EEXIST),
            Err(ENOENT) => Ok((dir, name)),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn kind(&self, node: u64) -> u32 {
        self.kernel.borrow().inodes[&node].kind
    }

    /// Attributes, fresh from the daemon.
    pub(super) async fn attr(&self, nodeid: u64, file: Option<&File>) -> Res<Attr> {
        let fh = file.map_or(0, |file| file.fh);
        let flags = if file.is_some() { GETATTR_FH } else { 0 };
        let body = GetattrIn { getattr_flags: flags, dummy: 0, fh };
        let out = self.call(Opcode::GETATTR, nodeid, &[body.as_bytes()]).await?;
        Ok(read::<AttrOut>(&out).attr)
    }

    pub(super) async fn node(&self, nodeid: u64, file: Option<&File>) -> Given {
        let attr = self.attr(nodeid, file).await?;
        Ok(Value::Node { who: nodeid, mode: attr.mode, size: attr.size, nlink: attr.nlink })
    }

    pub(super) fn file(&self, fd: usize) -> Res<File> {
        self.files.get(&fd).copied().ok_or(EBADF)
    }

    pub(super) fn opened(&mut self, fd: usize, nodeid: u64, fh: u64, flags: u32) -> File {
        self.kernel.borrow_mut().hold(nodeid);
        self.serial.set(self.serial.get() + 1);
        let serial = 1_000_000 * self.id + self.serial.get();
        let file = File { nodeid, fh, flags, serial, flocked: false };
        self.files.insert(fd, file);
        file
    }

    pub(super) async fn open(&mut self, nodeid: u64, flags: u32, fd: usize) -> Given {
        match self.kind(nodeid) {
            4 => return Err(EISDIR),
            10 => return Err(ELOOP),
            8 => {}
            _ => return Err(EACCES),
        }
        let body = OpenIn { flags: flags & !(O_CREAT | O_EXCL | O_TRUNC), open_flags: 0 };
        let out = self.call(Opcode::OPEN, nodeid, &[body.as_bytes()]).await?;
        let file = self.opened(fd, nodeid, read::<OpenOut>(&out).fh, flags);
        if flags & O_TRUNC != 0 {
            self.set_size(nodeid, 0, Some(&file)).await?;
        }
        self.node(nodeid, Some(&file)).await
    }

    pub(super) async fn set_size(&self, nodeid: u64, size: usize, file: Option<&File>) -> Res<()> {
        let with = if file.is_some() { SetattrValid::FH } else { SetattrValid::empty() };
        let fh = file.map_or(0, |file| file.fh);
        let (valid, size) = (SetattrValid::SIZE | with, size as u64);
        let body = SetattrIn { valid, size, fh, ..SetattrIn::default() };
        self.call(Opcode::SETATTR, nodeid, &[body.as_bytes()]).await.map(drop)
    }

    pub(super) async fn write(&self, file: &File, at: u64, data: &str) -> Given {
        let size = data.len() as u32;
        let body =
            WriteIn { fh: file.fh, offset: at, size, flags: file.flags, ..WriteIn::default() };
        let parts = [body.as_bytes(), data.as_bytes()];
        let out = self.call(Opcode::WRITE, file.nodeid, &parts).await?;
        assert_eq!(read::<WriteOut>(&out).size, size, "a short write");
        Ok(Value::Unit)
    }

    pub(super) async fn make(&self, opcode: Opcode, path: &str, head: &[u8], tail: &[u8]) -> Given {
        let (dir, name) = self.absent(path).await?;
        let body = self.entry(opcode, dir, name, &[head, name, b"\0", tail]).await?;
        self.node(read::<EntryOut>(&body).nodeid, None).await
    }

    pub(super) async fn release(&self, file: &File) {
        let body = ReleaseIn {
            fh: file.fh,
            flags: file.flags,
            release_flags: RELEASE_FLOCK_UNLOCK,
            lock_owner: file.serial,
        };
        if file.flocked {
            // Nobody may see the lock held still, so that outcomes are certain.
            let _ = self.call(Opcode::RELEASE, file.nodeid, &[body.as_bytes()]).await;
            self.kernel.borrow_mut().put(file.nodeid);
            return;
        }
        let mut kernel = self.kernel.borrow_mut();
        kernel.issue_background(Opcode::RELEASE, file.nodeid, &[body.as_bytes()]);
    }

    pub(super) async fn lock(
        &self,
        file: &File,
        opcode: Opcode,
        owner: u64,
        (start, end): (u64, u64),
        kind: u32,
        lk_flags: u32,
    ) -> Given {
        let lk = FileLock { start, end, type_: kind, pid: 77 };
        let body = LkIn { fh: file.fh, owner, lk, lk_flags, padding: 0 };
        self.call(opcode, file.nodeid, &[body.as_bytes()]).await.map(|_| Value::Unit)
    }

    pub(super) async fn rename(&self, old: &str, new: &str, flags: u32) -> Given {
        let path = (old, new);
        let (from, old) = self.parent(old).await?;
        let (to, new) = self.parent(new).await?;
        let source = self.lookup(from, old).await?;
        let target = match self.lookup(to, new).await {
            Err(ENOENT) => None,
            found => Some(found?),
        };
        if target == Some(source) && flags == 0 {
            return Ok(Value::Unit);
        }
        // What the kernel checks before it asks the daemon.
        if path.1.starts_with(&format!("{}/", path.0)) {
            return Err(EINVAL);
        }
        if let (Some(target), 0) = (target, flags) {
            match (self.kind(source) == 4, self.kind(target) == 4) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                _ => {}
            }
        }
        let result = if flags == 0 {
            let head = RenameIn { newdir: to };
            let parts = [head.as_bytes(), old, b"\0", new, b"\0"];
            self.call(Opcode::RENAME, from, &parts).await
        } else {
            let head = Rename2In { newdir: to, flags, padding: 0 };
            let parts = [head.as_bytes(), old, b"\0", new, b"\0"];
            self.call(Opcode::RENAME2, from, &parts).await
        };
        result?;
        let mut kernel = self.kernel.borrow_mut();
        if let (Some(target), 0) = (target, flags & EXCHANGE) {
            kernel.inodes.get_mut(&target).unwrap().dead = true;
        }
        kernel.unhash(from, old);
        kernel.unhash(to, new);
        kernel.splice(to, new, source);
        if let (Some(target), true) = (target, flags & EXCHANGE != 0) {
            kernel.splice(from, old, target);
        }
        Ok(Value::Unit)
    }

    pub(super) async fn list(&mut self, dd: usize, room: u32, take: usize, plus: bool) -> Res<()> {
        let stream = self.streams.get(&dd).ok_or(EBADF)?;
        if self.kernel.borrow().inodes[&stream.nodeid].dead {
            return Err(ENOENT);
        }
        let body = ReadIn { fh: stream.fh, offset: stream.cookie, size: room, ..ReadIn::default() };
        let opcode = if plus { Opcode::READDIRPLUS } else { Opcode::READDIR };
        let out = self.call(opcode, stream.nodeid, &[body.as_bytes()]).await?;
        let items: Vec<(Vec<u8>, u64)> = if plus {
            DirentsPlus::new(&out).map(|item| (item.name.to_vec(), item.off)).collect()
        } else {
            Dirents::new(&out).map(|item| (item.name.to_vec(), item.off)).collect()
        };
        let stream = self.streams.get_mut(&dd).ok_or(EBADF)?;
        stream.ended = items.is_empty();
        for (name, off) in items.into_iter().take(take) {
            stream.cookie = off;
            stream.names.push(name);
        }
        Ok(())
    }

    /// What is open: files and directories.
    pub fn open_ones(&self) -> (Vec<usize>, Vec<usize>) {
        (self.files.keys().copied().collect(), self.streams.keys().copied().collect())
    }
}
