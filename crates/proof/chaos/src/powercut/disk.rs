//! A disk whose power can go: what was written to a file since its last sync may be there or not
//! afterwards, sector by sector, in any combination. The same holds of names that were made or
//! removed since the folder's last sync.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rand::Rng;

use super::pages::Pages;

/// A disk writes a sector whole or not at all.
const SECTOR: usize = 512;

/// A change of the disk.
#[derive(Clone, Debug)]
pub enum Op {
    /// Bytes of a file.
    Write(u64, usize, Vec<u8>),
    /// A file's length.
    Length(u64, usize),
    /// All that was done to a file is to be durable.
    Sync(u64),
    /// A name is given to a file, or removed.
    Name(String, Option<u64>),
    /// All names are to be durable.
    SyncNames,
}

/// What a file may lose.
#[derive(Clone, Debug)]
enum Pending {
    /// A part of a sector, or all of one.
    Piece(usize, Vec<u8>),
    Length(usize),
}

/// A file as anybody sees it.
#[derive(Clone, Debug)]
pub struct Content {
    /// What is in it.
    pub bytes: Pages,
    /// When it was last written to.
    pub modified: SystemTime,
}

#[derive(Clone, Debug)]
struct File {
    now: Content,
    durable: Content,
    pending: Vec<Pending>,
}

/// Files in one folder.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<(String, Option<u64>)>,
}

impl Disk {
    /// A disk with one file, all of it durable.
    pub fn with(name: &str, inode: u64, bytes: &[u8]) -> Self {
        let mut disk = Self::default();
        let content = Content { bytes: Pages::new(bytes), modified: SystemTime::now() };
        disk.files.insert(inode, File { now: content.clone(), durable: content, pending: vec![] });
        disk.names.insert(name.to_owned(), inode);
        disk.durable_names = disk.names.clone();
        disk
    }

    /// The file of a name.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.names.get(name).copied()
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = (&String, u64)> {
        self.names.iter().map(|(name, inode)| (name, *inode))
    }

    /// A file's content.
    pub fn content(&self, inode: u64) -> Option<&Content> {
        self.files.get(&inode).map(|file| &file.now)
    }

    /// A number that no file has.
    pub fn free_inode(&self) -> u64 {
        self.files.keys().next_back().map_or(2, |last| last + 1)
    }

    /// Things of which each may be lost or not, if the power goes now.
    pub fn undecided(&self) -> usize {
        self.pending_names.len() + self.files.values().map(|file| file.pending.len()).sum::<usize>()
    }

    /// How often [`Self::after`] asks at most.
    pub fn questions(&self) -> usize {
        self.undecided() + self.files.values().filter(|file| !file.pending.is_empty()).count()
    }

    /// Does what is asked for.
    pub fn apply(&mut self, op: &Op, now: SystemTime) {
        match op {
            Op::Write(inode, at, bytes) => {
                let mut at = *at;
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let (piece, more) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                    self.change(*inode, Pending::Piece(at, piece.to_vec()), now);
                    at += piece.len();
                    rest = more;
                }
            }
            Op::Length(inode, length) => self.change(*inode, Pending::Length(*length), now),
            Op::Sync(inode) => {
                if let Some(file) = self.files.get_mut(inode) {
                    for pending in std::mem::take(&mut file.pending) {
                        pending.apply(&mut file.durable.bytes);
                    }
                    file.durable.modified = file.now.modified;
                }
            }
            Op::Name(name, inode) => {
                match inode {
                    Some(inode) => self.names.insert(name.clone(), *inode),
                    None => self.names.remove(name),
                };
                self.pending_names.push((name.clone(), *inode));
                if let Some(inode) = inode
                    && !self.files.contains_key(inode)
                {
                    let empty = Content { bytes: Pages::default(), modified: now };
                    let file = File { now: empty.clone(), durable: empty, pending: vec![] };
                    self.files.insert(*inode, file);
                }
            }
            Op::SyncNames => {
                self.pending_names.clear();
                self.durable_names.clone_from(&self.names);
            }
        }
    }

    fn change(&mut self, inode: u64, pending: Pending, now: SystemTime) {
        if let Some(file) = self.files.get_mut(&inode) {
            pending.apply(&mut file.now.bytes);
            file.now.modified = now;
            file.pending.push(pending);
        }
    }

    /// What is on the disk after the power went, if chance has its way: hardly anything of what may
    /// be lost, about half, or nearly all.
    pub fn lose(&self, rng: &mut impl Rng) -> Self {
        let share = [0.0, 0.03, 0.5, 0.97, 1.0][rng.random_range(0..5)];
        self.after(|| rng.random_bool(share))
    }

    /// What is on the disk after the power went. `keep` is asked of each thing that may be lost.
    pub fn after(&self, mut keep: impl FnMut() -> bool) -> Self {
        let mut names = self.durable_names.clone();
        for (name, inode) in self.pending_names.iter().filter(|_| keep()) {
            match inode {
                Some(inode) => names.insert(name.clone(), *inode),
                None => names.remove(name),
            };
        }
        let mut files = BTreeMap::new();
        for (inode, file) in &self.files {
            if !names.values().any(|named| named == inode) {
                continue;
            }
            let mut content = file.durable.clone();
            for pending in file.pending.iter().filter(|_| keep()) {
                pending.apply(&mut content.bytes);
            }
            if !file.pending.is_empty() && keep() {
                content.modified = file.now.modified;
            }
            files.insert(*inode, File { now: content.clone(), durable: content, pending: vec![] });
        }
        Self { files, durable_names: names.clone(), names, pending_names: vec![] }
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Pages) {
        match self {
            Self::Piece(at, piece) => bytes.write(*at, piece),
            Self::Length(length) => bytes.resize(*length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    #[test]
    fn what_is_not_synced_may_be_lost() {
        let mut disk = Disk::with("image", 2, &[0; 2048]);
        disk.apply(&Op::Write(2, 512, vec![1; 1024]), now());
        assert_eq!(disk.undecided(), 2);
        assert_eq!(disk.content(2).unwrap().bytes.to_vec()[512..1536], [1; 1024]);
        assert_eq!(disk.after(|| false).content(2).unwrap().bytes.to_vec(), [0; 2048]);
        assert_eq!(disk.after(|| true).content(2).unwrap().bytes.to_vec()[512..1536], [1; 1024]);
        let mut second = [false, true, false].into_iter();
        let torn = disk.after(|| second.next().unwrap());
        let expected: Vec<u8> = [[0; 512], [0; 512], [1; 512], [0; 512]].concat();
        assert_eq!(torn.content(2).unwrap().bytes.to_vec(), expected);
        disk.apply(&Op::Sync(2), now());
        assert_eq!(disk.undecided(), 0);
        assert_eq!(disk.after(|| false).content(2).unwrap().bytes.to_vec()[512..1536], [1; 1024]);
    }

    #[test]
    fn names_need_a_sync_of_their_own() {
        let mut disk = Disk::with("image", 2, &[]);
        let inode = disk.free_inode();
        disk.apply(&Op::Name("journal".to_owned(), Some(inode)), now());
        disk.apply(&Op::Write(inode, 0, vec![7; 10]), now());
        disk.apply(&Op::Sync(inode), now());
        assert_eq!(disk.after(|| false).find("journal"), None);
        assert_eq!(disk.after(|| true).content(inode).unwrap().bytes.to_vec(), [7; 10]);
        disk.apply(&Op::SyncNames, now());
        assert_eq!(disk.after(|| false).content(inode).unwrap().bytes.to_vec(), [7; 10]);
        disk.apply(&Op::Name("journal".to_owned(), None), now());
        assert_eq!(disk.find("journal"), None);
        assert_eq!(disk.after(|| false).find("journal"), Some(inode));
    }
}
