//! What operations should give: the plain model, without FUSE and crashes.

use super::disk::*;
use super::listing::{Held, take_lock};
use super::ops::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone)]
struct File {
    ino: u64,
    flags: u32,
}

#[derive(Clone)]
struct Stream {
    ino: u64,
    must: BTreeSet<Vec<u8>>,
    may: BTreeSet<Vec<u8>>,
}

/// The oracle of one client.
#[derive(Clone)]
pub struct Plain {
    pub disk: Disk,
    links: bool,
    files: BTreeMap<usize, File>,
    streams: BTreeMap<usize, Stream>,
    locks: Vec<Held>,
    serial: u64,
    id: u64,
    opened: BTreeMap<usize, u64>,
}

fn split(path: &str) -> Vec<&[u8]> {
    path.split('/').map(str::as_bytes).collect()
}

impl Plain {
    pub fn new(id: u64, links: bool) -> Self {
        Self {
            disk: Disk::new(),
            links,
            files: BTreeMap::new(),
            streams: BTreeMap::new(),
            locks: Vec::new(),
            serial: 0,
            id,
            opened: BTreeMap::new(),
        }
    }

    fn walk(&self, path: &str) -> Res<u64> {
        split(path).into_iter().try_fold(ROOT, |dir, name| self.disk.lookup(dir, name))
    }

    fn parent<'a>(&self, path: &'a str) -> Res<(u64, &'a [u8])> {
        let (dir, name) = path.rsplit_once('/').map_or((None, path), |(d, n)| (Some(d), n));
        let dir = dir.map_or(Ok(ROOT), |dir| self.walk(dir))?;
        if self.disk.is_dir(dir) { Ok((dir, name.as_bytes())) } else { Err(ENOTDIR) }
    }

    fn file(&self, fd: usize) -> Res<&File> {
        self.files.get(&fd).ok_or(EBADF)
    }

    fn node(&self, ino: u64) -> Given {
        let inode = self.disk.get(ino);
        let size = inode.data.len() as u64;
        Ok(Value::Node { who: ino, mode: inode.mode, size, nlink: inode.nlink })
    }

    fn add_file(&mut self, fd: usize, ino: u64, flags: u32) {
        self.files.insert(fd, File { ino, flags });
        self.serial += 1;
        self.opened.insert(fd, 1_000_000 * self.id + self.serial);
    }

    fn check_open(&self, ino: u64, flags: u32) -> Res<()> {
        match self.disk.get(ino).mode & TYPE {
            DIR => Err(EISDIR),
            LINK => Err(ELOOP),
            REG => self.disk.may_open(ino, flags),
            _ => Err(EACCES),
        }
    }

    /// Listings under way see that a directory changes.
    fn touched(&mut self, before: BTreeMap<u64, BTreeSet<Vec<u8>>>) {
        for stream in self.streams.values_mut() {
            let Some(dir) = self.disk.inodes.get(&stream.ino) else { continue };
            let now: BTreeSet<_> = dir.children.keys().cloned().collect();
            stream.must.retain(|name| now.contains(name));
            if before.get(&stream.ino).is_some_and(|b| *b != now) {
                stream.may.extend(now);
            }
        }
    }

    pub fn run(&mut self, op: &Op) -> Given {
        let watched: Vec<_> = self.streams.values().map(|s| s.ino).collect();
        let names = |disk: &Disk, ino: &u64| -> BTreeSet<Vec<u8>> {
            disk.inodes.get(ino).map(|d| d.children.keys().cloned().collect()).unwrap_or_default()
        };
        let before = watched.iter().map(|ino| (*ino, names(&self.disk, ino))).collect();
        let given = self.act(op);
        self.touched(before);
        let used = |ino| {
            self.files.values().any(|f| f.ino == ino) || self.streams.values().any(|s| s.ino == ino)
        };
        self.disk.purge(used);
        given
    }

    fn act(&mut self, op: &Op) -> Given {
        let unit = Ok(Value::Unit);
        match op {
            Op::Create { path, flags, mode, fd } => {
                if self.files.contains_key(fd) {
                    return Err(EBADF);
                }
                let (dir, name) = self.parent(path)?;
                let ino = match self.disk.lookup(dir, name) {
                    Ok(_) if flags & O_EXCL != 0 => return Err(EEXIST),
                    Ok(ino) => {
                        if self.disk.is_dir(ino) {
                            return Err(EISDIR);
                        }
                        self.check_open(ino, *flags)?;
                        ino
                    }
                    Err(_) => self.disk.make(dir, name, REG | mode, b"")?,
                };
                if flags & O_TRUNC != 0 {
                    self.disk.get_mut(ino).data.clear();
                }
                self.add_file(*fd, ino, *flags);
                self.node(ino)
            }
            Op::Open { path, flags, fd } => {
                if self.files.contains_key(fd) {
                    return Err(EBADF);
                }
                let ino = self.walk(path)?;
                self.check_open(ino, *flags)?;
                if self.disk.is_dir(ino) {
                    return Err(EISDIR);
                }
                self.add_file(*fd, ino, *flags);
                self.node(ino)
            }
            Op::Close(fd) => {
                let file = self.files.remove(fd).ok_or(EBADF)?;
                // All processes that share it close it too, and so lose their POSIX locks.
                let flock = self.opened[fd];
                self.locks.retain(|l| l.ino != file.ino || (l.flock && l.owner != flock));
                unit
            }
            Op::Read { fd, at, len } => {
                let file = self.file(*fd)?;
                if file.flags & 3 == 1 {
                    return Err(EBADF);
                }
                Ok(Value::Bytes(self.disk.read(file.ino, *at, *len)))
            }
            Op::Write { fd, at, data } => {
                let file = self.file(*fd)?;
                if file.flags & 3 == 0 || file.flags & O_APPEND != 0 {
                    return Err(EBADF);
                }
                self.disk.write(file.ino, *at, data.as_bytes());
                unit
            }
            Op::Append { fd, data } => {
                let file = self.file(*fd)?;
                if file.flags & 3 == 0 || file.flags & O_APPEND == 0 {
                    return Err(EBADF);
                }
                let at = self.disk.get(file.ino).data.len();
                self.disk.write(file.ino, at, data.as_bytes());
                unit
            }
            Op::Mkdir(path) => self.make(path, DIR | 0o755, b""),
            Op::Mknod(path) => self.make(path, FIFO | 0o644, b""),
            Op::Symlink(path, target) => self.make(path, LINK | 0o777, target.as_bytes()),
            Op::Readlink(path) => {
                let inode = self.disk.get(self.walk(path)?);
                if inode.mode & TYPE != LINK {
                    return Err(EINVAL);
                }
                Ok(Value::Bytes(inode.data.clone()))
            }
            Op::Link(old, new) => {
                let ino = self.walk(old)?;
                let (dir, name) = self.parent(new)?;
                if !self.links && !self.disk.is_dir(ino) && self.disk.lookup(dir, name).is_err() {
                    return Err(EPERM);
                }
                self.disk.link(ino, dir, name)?;
                self.node(ino)
            }
            Op::Unlink(path) => {
                let (dir, name) = self.parent(path)?;
                self.disk.unlink(dir, name)?;
                unit
            }
            Op::Rmdir(path) => {
                let (dir, name) = self.parent(path)?;
                self.disk.rmdir(dir, name)?;
                unit
            }
            Op::Rename(old, new, flags) => {
                let (from, old) = self.parent(old)?;
                let (to, new) = self.parent(new)?;
                self.disk.rename(from, old, to, new, *flags)?;
                unit
            }
            Op::Stat(path) => self.node(self.walk(path)?),
            Op::Fstat(fd) => self.node(self.file(*fd)?.ino),
            Op::Chmod(path, mode) => {
                let ino = self.walk(path)?;
                if self.disk.get(ino).mode & TYPE == REG {
                    self.disk.get_mut(ino).mode = REG | mode;
                }
                self.node(ino)
            }
            Op::Truncate(path, size) => {
                let ino = self.walk(path)?;
                if self.disk.get(ino).mode & TYPE != REG {
                    return Err(EINVAL);
                }
                self.disk.get_mut(ino).data.resize(*size, 0);
                self.node(ino)
            }
            Op::Ftruncate(fd, size) => {
                let ino = self.file(*fd)?.ino;
                self.disk.get_mut(ino).data.resize(*size, 0);
                self.node(ino)
            }
            Op::SetXattr { path, name, value, flags } => {
                let ino = self.walk(path)?;
                self.disk.set_xattr(ino, name.as_bytes(), value.as_bytes(), *flags)?;
                unit
            }
            Op::GetXattr(path, name) => {
                let ino = self.walk(path)?;
                let value = self.disk.get(ino).xattrs.get(name.as_bytes());
                value.cloned().map(Value::Bytes).ok_or(ENODATA)
            }
            Op::RemoveXattr(path, name) => {
                let ino = self.walk(path)?;
                self.disk.remove_xattr(ino, name.as_bytes())?;
                unit
            }
            Op::Opendir(path, dd) => {
                if self.streams.contains_key(dd) {
                    return Err(EBADF);
                }
                let ino = self.walk(path)?;
                if !self.disk.is_dir(ino) {
                    return Err(ENOTDIR);
                }
                self.start_listing(*dd, ino);
                unit
            }
            Op::List { dd, .. } => {
                self.live_stream(*dd)?;
                unit
            }
            Op::ListRest { dd, .. } => {
                let stream = self.live_stream(*dd)?;
                Ok(Value::Expect { must: stream.must.clone(), may: stream.may.clone() })
            }
            Op::Rewind(dd) => {
                let ino = self.streams.get(dd).ok_or(EBADF)?.ino;
                self.start_listing(*dd, ino);
                unit
            }
            Op::Closedir(dd) => self.streams.remove(dd).map(|_| Value::Unit).ok_or(EBADF),
            Op::Lock { fd, owner, start, end, kind, .. } => {
                let ino = self.file(*fd)?.ino;
                let (start, end, kind, owner) = (*start, *end, *kind, *owner);
                self.lock(Held { ino, owner, start, end, kind, flock: false })
            }
            Op::Fsync(fd) => {
                self.file(*fd)?;
                Ok(Value::Unit)
            }
            Op::Flock { fd, kind } => {
                let ino = self.file(*fd)?.ino;
                let owner = self.opened[fd];
                let end = i64::MAX as u64;
                self.lock(Held { ino, owner, start: 0, end, kind: *kind, flock: true })
            }
            Op::Poll(fd) => {
                let data = &self.disk.get(self.file(*fd)?.ino).data;
                Ok(Value::Bytes(vec![u8::from(!data.is_empty())]))
            }
            Op::Shrink(_) => unit,
        }
    }

    fn lock(&mut self, new: Held) -> Given {
        if take_lock(&mut self.locks, new) { Ok(Value::Unit) } else { Err(EAGAIN) }
    }

    fn make(&mut self, path: &str, mode: u32, data: &[u8]) -> Given {
        let (dir, name) = self.parent(path)?;
        let ino = self.disk.make(dir, name, mode, data)?;
        self.node(ino)
    }

    /// A listing under way. The kernel lists no directory that was removed.
    fn live_stream(&self, dd: usize) -> Res<&Stream> {
        let stream = self.streams.get(&dd).ok_or(EBADF)?;
        if self.disk.get(stream.ino).nlink == 0 { Err(ENOENT) } else { Ok(stream) }
    }

    fn start_listing(&mut self, dd: usize, ino: u64) {
        let names: BTreeSet<_> = self.disk.get(ino).children.keys().cloned().collect();
        self.streams.insert(dd, Stream { ino, must: names.clone(), may: names });
    }

    /// What is open: files and directories.
    pub fn open(&self) -> (Vec<usize>, Vec<usize>) {
        (self.files.keys().copied().collect(), self.streams.keys().copied().collect())
    }
}
