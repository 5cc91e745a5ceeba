//! A file system that is a tree in memory, and understands FUSE requests: the daemon of these
//! tests.

use belay_oplog::Run;
use belay_wire::abi::{
    CopyFileRangeIn, InHeader, LinkIn, MkdirIn, MknodIn, Rename2In, SetattrIn, SetattrValid,
    WRITE_KILL_SUIDGID, WriteIn,
};
pub use belay_wire::errno::{EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY};
use belay_wire::{Opcode, Request};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File(Vec<u8>),
    Link(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, u64>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub owner: u32,
    pub time: u64,
}

/// What is answered: inode, mode, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub ino: u64,
    pub mode: u32,
    pub size: u64,
}

/// The root is inode 1. Inodes are never removed, so that open files need no care.
#[derive(Clone, Debug)]
pub struct Fs {
    pub inodes: BTreeMap<u64, Inode>,
    next: u64,
}

/// A tree as applications see it: by path, kind, mode, owner, time, and the first path of the same
/// inode.
pub type View = BTreeMap<Vec<Vec<u8>>, (Kind, u32, u32, u64, Vec<Vec<u8>>)>;

impl Fs {
    pub fn new() -> Self {
        let kind = Kind::Directory(BTreeMap::new());
        let root = Inode { kind, mode: 0o40755, owner: 0, time: 0 };
        Self { inodes: BTreeMap::from([(1, root)]), next: 2 }
    }

    /// The same tree as another life of the daemon sees it: with other inodes.
    pub fn reborn(&self, salt: u64) -> Self {
        let mut new = Self::new();
        new.next = 1000 + (salt % 97) * 1000;
        let mut known = BTreeMap::from([(1, 1)]);
        let mut queue = vec![1];
        new.inodes.insert(1, self.inodes[&1].clone());
        while let Some(old) = queue.pop() {
            let Kind::Directory(entries) = &self.inodes[&old].kind else { continue };
            let mut renumbered = BTreeMap::new();
            for (name, child) in entries {
                let number = *known.entry(*child).or_insert_with(|| {
                    queue.push(*child);
                    new.next += 1;
                    new.inodes.insert(new.next, self.inodes[child].clone());
                    new.next
                });
                renumbered.insert(name.clone(), number);
            }
            new.inodes.get_mut(&known[&old]).expect("there").kind = Kind::Directory(renumbered);
        }
        new.next += 1;
        new
    }

    pub fn view(&self) -> View {
        let mut view = View::new();
        let mut first: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let mut queue = vec![(Vec::new(), 1)];
        while let Some((path, ino)) = queue.pop() {
            let inode = &self.inodes[&ino];
            let mut kind = inode.kind.clone();
            if let Kind::Directory(entries) = &mut kind {
                for (name, child) in entries.iter_mut() {
                    let mut below: Vec<Vec<u8>> = path.clone();
                    below.push(name.clone());
                    queue.push((below, *child));
                    *child = 0; // the number means nothing
                }
            }
            let one = first.entry(ino).or_insert_with(|| path.clone()).clone();
            view.insert(path, (kind, inode.mode, inode.owner, inode.time, one));
        }
        view
    }

    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        match &self.inodes.get(&parent).ok_or(ENOENT)?.kind {
            Kind::Directory(entries) => entries.get(name).copied().ok_or(ENOENT),
            _ => Err(ENOTDIR),
        }
    }

    pub fn is_directory(&self, ino: u64) -> bool {
        matches!(self.inodes.get(&ino).map(|inode| &inode.kind), Some(Kind::Directory(_)))
    }

    fn entries(&mut self, ino: u64) -> Result<&mut BTreeMap<Vec<u8>, u64>, i32> {
        match &mut self.inodes.get_mut(&ino).ok_or(ENOENT)?.kind {
            Kind::Directory(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn file(&mut self, ino: u64) -> Result<&mut Vec<u8>, i32> {
        match &mut self.inodes.get_mut(&ino).ok_or(ENOENT)?.kind {
            Kind::File(bytes) => Ok(bytes),
            _ => Err(EINVAL),
        }
    }

    fn stamp(&mut self, inos: &[u64], now: u64) {
        for ino in inos {
            self.inodes.get_mut(ino).expect("there").time = now;
        }
    }

    fn make(
        &mut self,
        request: &Request<'_>,
        kind: Kind,
        mode: u32,
        now: u64,
    ) -> Result<Answer, i32> {
        let (parent, name) = (request.header.nodeid, request.names().first.expect("a name"));
        if self.lookup(parent, name) != Err(ENOENT) {
            return Err(EEXIST);
        }
        let ino = self.next;
        self.next += 1;
        self.inodes.insert(ino, Inode { kind, mode, owner: request.header.uid, time: now });
        self.entries(parent)?.insert(name.to_vec(), ino);
        self.stamp(&[parent], now);
        Ok(Answer { ino, mode, size: 0 })
    }

    /// Whether `below` is `above` or in it.
    fn is_below(&self, below: u64, above: u64) -> bool {
        below == above
            || match &self.inodes[&above].kind {
                Kind::Directory(entries) => {
                    entries.values().any(|child| self.is_below(below, *child))
                }
                _ => false,
            }
    }

    /// Carries out a request, in the daemon's own numbers. `data` are those of a WRITE, which may
    /// be several.
    pub fn handle(
        &mut self,
        header: InHeader,
        body: &[u8],
        data: &[Run],
        now: u64,
    ) -> Result<Answer, i32> {
        let request = Request { header, body };
        let node = header.nodeid;
        let names = request.names();
        match request.opcode() {
            Opcode::MKNOD => {
                let mode = request.body_as::<MknodIn>().expect("whole").mode;
                self.make(&request, Kind::File(Vec::new()), mode, now)
            }
            Opcode::MKDIR => {
                let mode = request.body_as::<MkdirIn>().expect("whole").mode | 0o40000;
                self.make(&request, Kind::Directory(BTreeMap::new()), mode, now)
            }
            Opcode::SYMLINK => {
                let target = names.second.expect("a target").to_vec();
                self.make(&request, Kind::Link(target), 0o120777, now)
            }
            Opcode::LINK => {
                let old = request.body_as::<LinkIn>().expect("whole").oldnodeid;
                let name = names.first.expect("a name");
                if self.lookup(node, name) != Err(ENOENT) {
                    return Err(EEXIST);
                }
                if self.is_directory(old) {
                    return Err(EISDIR);
                }
                self.entries(node)?.insert(name.to_vec(), old);
                self.stamp(&[node, old], now);
                Ok(Answer { ino: old, mode: self.inodes[&old].mode, size: 0 })
            }
            Opcode::UNLINK | Opcode::RMDIR => {
                let name = names.first.expect("a name");
                let ino = self.lookup(node, name)?;
                match (&self.inodes[&ino].kind, request.opcode()) {
                    (Kind::Directory(_), Opcode::UNLINK) => return Err(EISDIR),
                    (Kind::Directory(entries), _) if !entries.is_empty() => return Err(ENOTEMPTY),
                    (Kind::File(_) | Kind::Link(_), Opcode::RMDIR) => return Err(ENOTDIR),
                    _ => {}
                }
                self.entries(node)?.remove(name);
                self.stamp(&[node, ino], now);
                Ok(Answer::default())
            }
            Opcode::RENAME2 => self.rename(&request, now),
            Opcode::SETATTR => {
                let set = request.body_as::<SetattrIn>().expect("whole");
                if set.valid.contains(SetattrValid::SIZE) {
                    self.file(node)?.resize(set.size as usize, 0);
                }
                let inode = self.inodes.get_mut(&node).ok_or(ENOENT)?;
                if set.valid.contains(SetattrValid::MODE) {
                    inode.mode = set.mode;
                }
                inode.time = now;
                Ok(Answer { ino: node, mode: inode.mode, size: 0 })
            }
            Opcode::WRITE => {
                for run in data {
                    let end = run.offset as usize + run.bytes.len();
                    let file = self.file(node)?;
                    file.resize(file.len().max(end), 0);
                    file[run.offset as usize..end].copy_from_slice(&run.bytes);
                }
                let flags = request.body_as::<WriteIn>().expect("whole").write_flags;
                let inode = self.inodes.get_mut(&node).ok_or(ENOENT)?;
                if flags & WRITE_KILL_SUIDGID != 0 {
                    inode.mode &= !0o6000;
                }
                inode.time = now;
                let size = data.iter().map(|run| run.bytes.len() as u64).sum();
                Ok(Answer { ino: node, mode: inode.mode, size })
            }
            Opcode::COPY_FILE_RANGE => {
                let copy = request.body_as::<CopyFileRangeIn>().expect("whole");
                let from = self.file(node)?.clone();
                let bytes = from.get(copy.off_in as usize..).unwrap_or_default();
                let bytes = bytes.get(..copy.len as usize).unwrap_or(bytes).to_vec();
                let to = self.file(copy.nodeid_out)?;
                let end = copy.off_out as usize + bytes.len();
                if !bytes.is_empty() {
                    to.resize(to.len().max(end), 0);
                    to[copy.off_out as usize..end].copy_from_slice(&bytes);
                }
                self.stamp(&[copy.nodeid_out], now);
                Ok(Answer { size: bytes.len() as u64, ..Answer::default() })
            }
            other => panic!("{other}"),
        }
    }

    fn rename(&mut self, request: &Request<'_>, now: u64) -> Result<Answer, i32> {
        let rename = request.body_as::<Rename2In>().expect("whole");
        let names = request.names();
        let (from, old) = (request.header.nodeid, names.first.expect("a name"));
        let (to, new) = (rename.newdir, names.second.expect("a name"));
        let source = self.lookup(from, old)?;
        let target = self.lookup(to, new).ok();
        if self.is_below(to, source) {
            return Err(EINVAL);
        }
        if rename.flags & 2 != 0 {
            let target = target.ok_or(ENOENT)?;
            if self.is_below(from, target) {
                return Err(EINVAL);
            }
            self.entries(to)?.insert(new.to_vec(), source);
            self.entries(from)?.insert(old.to_vec(), target);
            self.stamp(&[from, to, source, target], now);
            return Ok(Answer::default());
        }
        if rename.flags & 1 != 0 && target.is_some() {
            return Err(EEXIST);
        }
        if target == Some(source) {
            return Ok(Answer::default());
        }
        if let Some(target) = target {
            match (self.is_directory(source), &self.inodes[&target].kind) {
                (true, Kind::Directory(entries)) if entries.is_empty() => {}
                (true, Kind::Directory(_)) => return Err(ENOTEMPTY),
                (true, _) => return Err(ENOTDIR),
                (false, Kind::Directory(_)) => return Err(EISDIR),
                _ => {}
            }
            self.stamp(&[target], now);
        }
        self.entries(from)?.remove(old);
        self.entries(to)?.insert(new.to_vec(), source);
        self.stamp(&[from, to, source], now);
        Ok(Answer::default())
    }
}
