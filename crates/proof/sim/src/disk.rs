//! The backing file system: what survives the daemon, and also what the oracle is made of.

pub use belay_wire::errno::{
    EACCES, EAGAIN, EBADF, EEXIST, EINVAL, EIO, EISDIR, ELOOP, ENODATA, ENOENT, ENOTDIR, ENOTEMPTY,
    EPERM,
};
use std::collections::BTreeMap;

pub const DIR: u32 = 0o040000;
pub const REG: u32 = 0o100000;
pub const FIFO: u32 = 0o010000;
pub const LINK: u32 = 0o120000;
pub const TYPE: u32 = 0o170000;

pub use belay_wire::abi::{RENAME_EXCHANGE as EXCHANGE, RENAME_NOREPLACE as NOREPLACE};

/// Inode number of the root.
pub const ROOT: u64 = 1;

pub type Res<T> = Result<T, i32>;

#[derive(Clone, Debug, Default)]
pub struct Inode {
    /// What applications see as its inode number.
    pub number: u64,
    pub mode: u32,
    pub data: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub children: BTreeMap<Vec<u8>, u64>,
    pub nlink: u32,
    pub parent: u64,
}

#[derive(Clone, Debug)]
pub struct Disk {
    pub inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// The lowest number that no file with a name has is given next, as by ext2: it depends on all
    /// that was made and removed before.
    reuses: bool,
}

impl Disk {
    #[allow(clippy::new_without_default, reason = "no disk is the default one")]
    pub fn new() -> Self {
        let root = Inode { number: ROOT, mode: DIR | 0o755, nlink: 1, ..Inode::default() };
        Self { inodes: BTreeMap::from([(ROOT, root)]), next: 100, reuses: false }
    }

    /// One on which numbers are given again.
    pub fn reusing() -> Self {
        Self { reuses: true, ..Self::new() }
    }

    pub fn get(&self, ino: u64) -> &Inode {
        self.inodes.get(&ino).unwrap_or_else(|| panic!("disk: inode {ino} is gone"))
    }

    pub fn get_mut(&mut self, ino: u64) -> &mut Inode {
        self.inodes.get_mut(&ino).unwrap_or_else(|| panic!("disk: inode {ino} is gone"))
    }

    pub fn is_dir(&self, ino: u64) -> bool {
        self.get(ino).mode & TYPE == DIR
    }

    fn dir(&self, ino: u64) -> Res<&Inode> {
        let inode = self.get(ino);
        if inode.mode & TYPE != DIR { Err(ENOTDIR) } else { Ok(inode) }
    }

    pub fn lookup(&self, dir: u64, name: &[u8]) -> Res<u64> {
        self.dir(dir)?.children.get(name).copied().ok_or(ENOENT)
    }

    /// Makes an inode; `data` is a symbolic link's target.
    pub fn make(&mut self, dir: u64, name: &[u8], mode: u32, data: &[u8]) -> Res<u64> {
        let parent = self.dir(dir)?;
        if parent.nlink == 0 {
            return Err(ENOENT);
        }
        if parent.children.contains_key(name) {
            return Err(EEXIST);
        }
        self.next += 1;
        let ino = self.next;
        let used = |number| self.inodes.values().any(|i| i.nlink > 0 && i.number == number);
        let number = if self.reuses { (101..).find(|n| !used(*n)).unwrap() } else { ino };
        let inode =
            Inode { number, mode, data: data.to_vec(), nlink: 1, parent: dir, ..Inode::default() };
        self.inodes.insert(ino, inode);
        self.get_mut(dir).children.insert(name.to_vec(), ino);
        Ok(ino)
    }

    pub fn link(&mut self, ino: u64, dir: u64, name: &[u8]) -> Res<()> {
        if self.is_dir(ino) {
            return Err(EPERM);
        }
        if self.lookup(dir, name).is_ok() {
            return Err(EEXIST);
        }
        if self.get(ino).nlink == 0 {
            return Err(ENOENT);
        }
        self.dir(dir)?;
        self.get_mut(dir).children.insert(name.to_vec(), ino);
        self.get_mut(ino).nlink += 1;
        Ok(())
    }

    pub fn unlink(&mut self, dir: u64, name: &[u8]) -> Res<u64> {
        let ino = self.lookup(dir, name)?;
        if self.is_dir(ino) {
            return Err(EISDIR);
        }
        self.get_mut(dir).children.remove(name);
        self.get_mut(ino).nlink -= 1;
        Ok(ino)
    }

    pub fn rmdir(&mut self, dir: u64, name: &[u8]) -> Res<u64> {
        let ino = self.lookup(dir, name)?;
        if !self.dir(ino)?.children.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.get_mut(dir).children.remove(name);
        self.get_mut(ino).nlink -= 1;
        Ok(ino)
    }

    fn is_below(&self, mut ino: u64, above: u64) -> bool {
        while ino != ROOT {
            if ino == above {
                return true;
            }
            ino = self.get(ino).parent;
        }
        false
    }

    /// rename(2) and renameat2(2) with its flags.
    pub fn rename(&mut self, from: u64, old: &[u8], to: u64, new: &[u8], flags: u32) -> Res<()> {
        let source = self.lookup(from, old)?;
        let target = self.lookup(to, new).ok();
        if self.is_below(to, source) {
            return Err(EINVAL);
        }
        if flags & EXCHANGE != 0 {
            let target = target.ok_or(ENOENT)?;
            if self.is_below(from, target) {
                return Err(EINVAL);
            }
            self.put(from, old, target);
            self.put(to, new, source);
            return Ok(());
        }
        if let Some(target) = target {
            if flags & NOREPLACE != 0 {
                return Err(EEXIST);
            }
            if target == source {
                return Ok(());
            }
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.get(target).children.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
            self.get_mut(target).nlink -= 1;
        }
        self.get_mut(from).children.remove(old);
        self.put(to, new, source);
        Ok(())
    }

    fn put(&mut self, dir: u64, name: &[u8], ino: u64) {
        self.get_mut(dir).children.insert(name.to_vec(), ino);
        self.get_mut(ino).parent = dir;
    }

    pub fn write(&mut self, ino: u64, at: usize, data: &[u8]) {
        let file = &mut self.get_mut(ino).data;
        if file.len() < at + data.len() {
            file.resize(at + data.len(), 0);
        }
        file[at..at + data.len()].copy_from_slice(data);
    }

    pub fn read(&self, ino: u64, at: usize, len: usize) -> Vec<u8> {
        let file = &self.get(ino).data;
        let end = file.len().min(at + len);
        file.get(at..end).unwrap_or(&[]).to_vec()
    }

    pub fn set_xattr(&mut self, ino: u64, name: &[u8], value: &[u8], flags: u32) -> Res<()> {
        let xattrs = &mut self.get_mut(ino).xattrs;
        match (flags, xattrs.contains_key(name)) {
            (1, true) => return Err(EEXIST),
            (2, false) => return Err(ENODATA),
            _ => {}
        }
        xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    pub fn remove_xattr(&mut self, ino: u64, name: &[u8]) -> Res<()> {
        self.get_mut(ino).xattrs.remove(name).map(drop).ok_or(ENODATA)
    }

    /// Whether the owner may open with these flags of open(2).
    pub fn may_open(&self, ino: u64, flags: u32) -> Res<()> {
        let mode = self.get(ino).mode;
        let needed = [0o400, 0o200, 0o600][(flags & 3).min(2) as usize];
        if mode & needed == needed { Ok(()) } else { Err(EACCES) }
    }

    /// Frees what has no name and is not in use.
    pub fn purge(&mut self, in_use: impl Fn(u64) -> bool) {
        self.inodes.retain(|ino, inode| inode.nlink > 0 || in_use(*ino));
    }

    /// The whole tree, one line for each name, without inode numbers.
    pub fn tree(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.walk(ROOT, String::new(), &mut out);
        out
    }

    fn walk(&self, dir: u64, path: String, out: &mut Vec<String>) {
        for (name, ino) in &self.get(dir).children {
            let inode = self.get(*ino);
            let path = format!("{path}/{}", String::from_utf8_lossy(name));
            out.push(format!(
                "{path} {:o} links={} {:?} {:?}",
                inode.mode,
                inode.nlink,
                String::from_utf8_lossy(&inode.data),
                inode.xattrs,
            ));
            if self.is_dir(*ino) {
                self.walk(*ino, path, out);
            }
        }
    }
}
