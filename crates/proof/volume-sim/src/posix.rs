//! The namespace module at work, compared with a plain directory: each operation must do the same to both, and say the same. The module dies
//! at any store, and the request is made again, as belay does.

use crate::Random;
use crate::disk::{Power, SimDisk};
use crate::memory::SimMemory;
use belay_cache::{Capacity, Cleaner, Layout, Publisher, Shared};
use belay_logical::Logical;
use belay_object::ObjectId;
use belay_posix::namespace::{Change, Node, Rename};
use belay_posix::{Caller, Error, Namespace, ROOT, View};
use belay_store::Parameters;
use rand::{Rng, SeedableRng};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What is done.
#[derive(Clone, Debug)]
pub enum Act {
    /// A file is made.
    Create(String),
    /// A directory is made.
    Mkdir(String),
    /// A symbolic link is made.
    Symlink(String, String),
    /// A file gets another name.
    Link(String, String),
    /// A name is removed.
    Unlink(String),
    /// A directory is removed.
    Rmdir(String),
    /// A file is renamed.
    Rename(String, String, Rename),
    /// Data are written.
    Write(String, u64, Vec<u8>),
    /// The length is changed.
    Truncate(String, u64),
    /// Permissions are changed.
    Chmod(String, u32),
}

/// A random one; few names, so that they meet.
pub fn random_act(random: &mut Random) -> Act {
    let path = path(random);
    let other = |random: &mut Random| self::path(random);
    match random.random_range(0..100) {
        0..16 => Act::Create(path),
        16..30 => Act::Mkdir(path),
        30..34 => Act::Symlink(format!("target{}", random.random_range(0..100)), path),
        34..40 => Act::Link(path, other(random)),
        40..50 => Act::Unlink(path),
        50..57 => Act::Rmdir(path),
        57..75 => {
            let how = [Rename::Replace, Rename::NoReplace, Rename::Exchange];
            let how = how[[0, 0, 1, 2][random.random_range(0..4)]];
            Act::Rename(path, other(random), how)
        }
        75..88 => {
            let length = [10, 5000, 20_000][random.random_range(0..3)];
            let data = vec![random.random(); random.random_range(1..length)];
            Act::Write(path, random.random_range(0..30_000), data)
        }
        88..95 => Act::Truncate(path, random.random_range(0..30_000)),
        _ => Act::Chmod(path, random.random_range(0..0o1000) & 0o777),
    }
}

fn path(random: &mut Random) -> String {
    let depth = random.random_range(1..4);
    // Some names are long, so that directories have several pages.
    let name = |random: &mut Random| match random.random_range(0..4) {
        0 => format!("{:0200}", random.random_range(0..60)),
        _ => ["a", "b", "c", "d"][random.random_range(0..4)].to_owned(),
    };
    let names: Vec<String> = (0..depth).map(|_| name(random)).collect();
    names.join("/")
}

type Failure = Error<belay_logical::Error>;

/// A volume with its namespace, beside a plain directory.
pub struct Compared {
    disk: SimDisk,
    memory: SimMemory,
    layout: Layout,
    random: Random,
    generation: u32,
    unique: u64,
    hint: u64,
    oracle: PathBuf,
    /// Deaths of the module in the middle of a request.
    pub deaths: u64,
    /// Of these, those after which the request had been done.
    pub done_by_the_dead: u64,
}

impl Compared {
    /// An empty volume beside that empty directory.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(seed: u64, oracle: &Path) -> Result<Self, String> {
        let disk = SimDisk::with(20_000, &Power::default());
        let made = Logical::format([9; 16], vec![([1; 16], &disk)], Parameters::default().small());
        let made = made.map_err(|why| why.to_string())?;
        let (epoch, room) = (made.epoch() - 1, made.room().map_err(|why| why.to_string())?);
        drop(made);
        let layout = Layout::new(Capacity { frames: 4000, slots: 500 });
        let memory = SimMemory::new(layout.words);
        Shared::new(memory.another(), layout).initialize(epoch, 0, &room);
        let mut this = Self {
            disk,
            memory,
            layout,
            random: Random::seed_from_u64(seed),
            generation: 1,
            unique: 0,
            hint: 0,
            oracle: oracle.to_owned(),
            deaths: 0,
            done_by_the_dead: 0,
        };
        this.request(false, |namespace| namespace.format())?.map_err(|errno| errno.to_string())?;
        Ok(this)
    }

    /// One request, made again until it is done; what came of it.
    fn request<T>(
        &mut self,
        may_die: bool,
        act: impl Fn(&mut Namespace<'_, '_, SimMemory, Logical<&SimDisk>>) -> Result<T, Failure>,
    ) -> Result<Result<Option<T>, Errno>, String> {
        self.unique += 1;
        let unique = self.unique;
        loop {
            let mut lower = Logical::open(vec![&self.disk]).map_err(|why| why.to_string())?;
            let view = self.memory.another();
            if may_die && self.random.random_range(0..4) == 0 {
                let most = [30, 600, 3000][self.random.random_range(0..3)];
                view.dies_after(Some(self.random.random_range(0..most)));
            }
            self.generation += 1;
            let shared = Shared::new(view.clone(), self.layout);
            let mut done = false;
            let publisher = Publisher::attach(shared, self.generation, |other, reply| {
                done |= other == unique && reply == b"done";
            });
            let mut publisher = match publisher {
                Err(_) if view.is_dead() => continue,
                publisher => publisher.map_err(|why: belay_cache::Error<Errno>| why.to_string())?,
            };
            if done {
                // What a dead life has published is not done again.
                self.done_by_the_dead += 1;
                return Ok(Ok(None));
            }
            let mut seen = View::new(&mut publisher, &mut lower);
            let mut namespace = Namespace::new(&mut seen, Caller::default(), &mut self.hint);
            let acted = act(&mut namespace);
            if may_die && !view.is_dead() && self.random.random_range(0..8) == 0 {
                // The last stores are those that count.
                let most = [40, 700][self.random.random_range(0..2)];
                view.dies_after(Some(self.random.random_range(0..most)));
            }
            let committed = match &acted {
                Ok(_) => seen.commit(unique, b"done"),
                // A request that fails changes nothing.
                Err(_) => Ok(()),
            };
            // It may as well die when it has published it, and not told anybody.
            let untold = may_die && committed.is_ok() && self.random.random_range(0..8) == 0;
            if view.is_dead() || untold {
                self.deaths += 1;
                continue;
            }
            match (acted, committed) {
                (Err(Error::Cache(belay_cache::Error::Full)), _)
                | (_, Err(Error::Cache(belay_cache::Error::Full))) => self.checkpoint()?,
                (Err(Error::Errno(errno)), _) => return Ok(Err(errno)),
                (Err(why), _) | (_, Err(why)) => return Err(why.to_string()),
                (Ok(value), Ok(())) => return Ok(Ok(Some(value))),
            }
        }
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// What is wrong.
    pub fn checkpoint(&mut self) -> Result<(), String> {
        let mut lower = Logical::open(vec![&self.disk]).map_err(|why| why.to_string())?;
        let cleaner = Cleaner::new(Shared::new(self.memory.another(), self.layout));
        cleaner.checkpoint(&mut lower).map(|_| ()).map_err(|why| why.to_string())
    }

    /// Does something to both, which must say the same.
    ///
    /// # Errors
    /// What differs.
    pub fn act(&mut self, act: &Act) -> Result<(), String> {
        let there = self.on_oracle(act);
        let here = self.request(true, |namespace| on_namespace(namespace, act))?.map(|_| ());
        match here == there {
            true => Ok(()),
            false => Err(format!("{act:.200?}: {here:?}, not {there:?}")),
        }
    }

    fn on_oracle(&self, act: &Act) -> Result<(), Errno> {
        let at = |path: &String| self.oracle.join(path);
        let mode = Mode::from_raw_mode(0o644);
        match act {
            Act::Create(path) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::open(at(path), flags, mode).map(|_| ())
            }
            Act::Mkdir(path) => rustix::fs::mkdir(at(path), Mode::from_raw_mode(0o755)),
            Act::Symlink(target, path) => rustix::fs::symlink(target.as_str(), at(path)),
            Act::Link(path, new) => {
                rustix::fs::linkat(CWD, at(path), CWD, at(new), AtFlags::empty())
            }
            Act::Unlink(path) => rustix::fs::unlink(at(path)),
            Act::Rmdir(path) => rustix::fs::rmdir(at(path)),
            Act::Rename(path, new, how) => {
                let flags = match how {
                    Rename::Replace => RenameFlags::empty(),
                    Rename::NoReplace => RenameFlags::NOREPLACE,
                    Rename::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, at(path), CWD, at(new), flags)
            }
            Act::Write(path, offset, data) => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::open(at(path), flags, Mode::empty())?;
                rustix::io::pwrite(&file, data, *offset).map(|_| ())
            }
            Act::Truncate(path, size) => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::open(at(path), flags, Mode::empty())?;
                rustix::fs::ftruncate(&file, *size)
            }
            Act::Chmod(path, mode) => {
                let found = rustix::fs::lstat(at(path))?;
                match FileType::from_raw_mode(found.st_mode) {
                    // Linux has no permissions of links.
                    FileType::Symlink => Err(Errno::LOOP),
                    _ => rustix::fs::chmod(at(path), Mode::from_raw_mode(*mode)),
                }
            }
        }
    }

    /// Compares all of the namespace with the directory.
    ///
    /// # Errors
    /// What differs.
    pub fn compare(&mut self) -> Result<(), String> {
        let here = self.request(false, |namespace| {
            let mut all = BTreeMap::new();
            walk(namespace, ROOT, String::new(), &mut all).map(|()| all)
        })?;
        let here = here.map_err(|errno| errno.to_string())?.unwrap_or_default();
        let mut there = BTreeMap::new();
        walk_oracle(&self.oracle, String::new(), &mut there).map_err(|errno| errno.to_string())?;
        for path in here.keys().chain(there.keys()) {
            let (here, there) = (here.get(path), there.get(path));
            if here != there {
                return Err(format!("{path}: {here:.300?}, not {there:.300?}"));
            }
        }
        Ok(())
    }
}

/// What a path leads to, without links: the directory, and the name in it.
fn parent<'p, B: belay_object::Lower>(
    namespace: &mut Namespace<'_, '_, SimMemory, B>,
    path: &'p str,
) -> Result<(ObjectId, &'p [u8]), Error<B::Error>> {
    let mut at = ROOT;
    let mut names: Vec<&str> = path.split('/').collect();
    let last = names.pop().unwrap_or_default();
    for name in names {
        at = follow(namespace, at, name)?.object;
    }
    Ok((at, last.as_bytes()))
}

/// A name in the middle of a path: the links of this test lead nowhere.
fn follow<B: belay_object::Lower>(
    namespace: &mut Namespace<'_, '_, SimMemory, B>,
    at: ObjectId,
    name: &str,
) -> Result<Node, Error<B::Error>> {
    let node = namespace.lookup(at, name.as_bytes())?;
    match node.metadata.kind() {
        belay_posix::Kind::Link => Err(Errno::NOENT.into()),
        belay_posix::Kind::Directory => Ok(node),
        _ => Err(Errno::NOTDIR.into()),
    }
}

fn on_namespace<B: belay_object::Lower>(
    namespace: &mut Namespace<'_, '_, SimMemory, B>,
    act: &Act,
) -> Result<(), Error<B::Error>> {
    let nobody = |_| false;
    match act {
        Act::Create(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, 0o100_644, 0).map(|_| ())
        }
        Act::Mkdir(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.make(at, name, 0o040_755, 0).map(|_| ())
        }
        Act::Symlink(target, path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.symlink(at, name, target.as_bytes()).map(|_| ())
        }
        Act::Link(path, new) => {
            let (at, name) = parent(namespace, path)?;
            let node = namespace.lookup(at, name)?;
            let (to, new_name) = parent(namespace, new)?;
            // As the kernel: what is there is found before what is wrong with the file.
            match namespace.lookup(to, new_name) {
                Ok(_) => return Err(Errno::EXIST.into()),
                Err(Error::Errno(Errno::NOENT)) => {}
                Err(why) => return Err(why),
            }
            namespace.link(node.object, to, new_name).map(|_| ())
        }
        Act::Unlink(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.unlink(at, name, nobody)
        }
        Act::Rmdir(path) => {
            let (at, name) = parent(namespace, path)?;
            namespace.rmdir(at, name, nobody)
        }
        Act::Rename(path, new, how) => {
            let from = parent(namespace, path)?;
            let to = parent(namespace, new)?;
            namespace.rename(from, to, *how, nobody)
        }
        Act::Write(path, offset, data) => {
            let node = opened(namespace, path)?;
            namespace.write(node, Some(*offset), data)
        }
        Act::Truncate(path, size) => {
            let node = opened(namespace, path)?;
            namespace.change(node, Change { size: Some(*size), ..Change::default() }).map(|_| ())
        }
        Act::Chmod(path, mode) => {
            let (at, name) = parent(namespace, path)?;
            let node = namespace.lookup(at, name)?;
            if node.metadata.kind() == belay_posix::Kind::Link {
                return Err(Errno::LOOP.into());
            }
            let change = Change { mode: Some(*mode), ..Change::default() };
            namespace.change(node.object, change).map(|_| ())
        }
    }
}

/// A file that is opened for writing, without following links.
fn opened<B: belay_object::Lower>(
    namespace: &mut Namespace<'_, '_, SimMemory, B>,
    path: &str,
) -> Result<ObjectId, Error<B::Error>> {
    let (at, name) = parent(namespace, path)?;
    let node = namespace.lookup(at, name)?;
    match node.metadata.kind() {
        belay_posix::Kind::Link => Err(Errno::LOOP.into()),
        belay_posix::Kind::Directory => Err(Errno::ISDIR.into()),
        _ => Ok(node.object),
    }
}

type Tree = BTreeMap<String, String>;

fn walk<B: belay_object::Lower>(
    namespace: &mut Namespace<'_, '_, SimMemory, B>,
    directory: ObjectId,
    path: String,
    all: &mut Tree,
) -> Result<(), Error<B::Error>> {
    let mut behind = 2;
    loop {
        let entries = namespace.list(directory, behind, 7)?;
        let Some(last) = entries.last() else { return Ok(()) };
        behind = last.key;
        for entry in entries {
            let node = namespace.listed(&entry)?;
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let metadata = node.metadata;
            let mut told = format!("{:o} {} links", metadata.mode, metadata.links);
            match metadata.kind() {
                belay_posix::Kind::Directory => walk(namespace, node.object, path.clone(), all)?,
                belay_posix::Kind::Link => {
                    let target = namespace.readlink(node.object)?;
                    let _ = write!(told, " {}", String::from_utf8_lossy(&target));
                }
                _ => {
                    let data = namespace.read(node.object, 0, usize::MAX)?;
                    let _ = write!(told, " {} bytes {:x}", node.size, sum(&data));
                }
            }
            all.insert(path, told);
        }
    }
}

fn walk_oracle(directory: &Path, path: String, all: &mut Tree) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = rustix::fs::lstat(entry.path())?;
        let path = format!("{path}/{}", entry.file_name().to_string_lossy());
        let mut told = format!("{:o} {} links", found.st_mode, found.st_nlink);
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => walk_oracle(&entry.path(), path.clone(), all)?,
            FileType::Symlink => {
                let _ = write!(told, " {}", std::fs::read_link(entry.path())?.display());
            }
            _ => {
                let data = std::fs::read(entry.path());
                // Root reads what nobody may.
                let data = data?;
                let _ = write!(told, " {} bytes {:x}", found.st_size, sum(&data));
            }
        }
        all.insert(path, told);
    }
    Ok(())
}

/// Tells contents apart in messages.
fn sum(data: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| {
        sum.rotate_left(5) ^ u64::from(*byte).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    data.iter().fold(data.len() as u64, step)
}
