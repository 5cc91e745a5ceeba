//! Carries out operations on a directory and says what came of each.

mod files;
mod inodes;
pub mod listing;
mod names;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
pub use belay_study::digest::{hash, hex};
use rand::RngCore;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::ops::{Op, Outcome, Slot, Value};
use inodes::Inodes;
use listing::Stream;

/// What an operation gives inside the executor.
type Done = std::result::Result<Value, Fault>;

/// Why an operation gave nothing.
enum Fault {
    Errno(Errno),
    EmptySlot,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        // vmap's and std's errors carry the number; one that does not is a misuse and must stand
        // out.
        Self::Errno(error.raw_os_error().map_or(Errno::NOSTR, Errno::from_raw_os_error))
    }
}

impl From<nix::Error> for Fault {
    fn from(errno: nix::Error) -> Self {
        Self::Errno(Errno::from_raw_os_error(errno as i32))
    }
}

/// An open file.
struct Open {
    fd: OwnedFd,
    ino: u64,
    locked: bool,
}

/// A directory with the open files, listings and known inode numbers of one worker.
pub struct Executor {
    root: PathBuf,
    root_fd: OwnedFd,
    slots: HashMap<Slot, Open>,
    streams: HashMap<Slot, Stream>,
    inodes: Inodes,
    directories_by_path: bool,
    /// Whether a file was closed since directories were last seen to be free of hidden files.
    closed_one: bool,
}

impl Executor {
    /// Works in `root`, which is opened once and for all. `own_numbers` as in
    /// [`belay_fixtures::Kind::has_own_numbers`].
    pub fn new(root: &Path, own_numbers: bool) -> Result<Self> {
        // The same rights for new files whoever starts the soak.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = openat(CWD, root, flags, Mode::empty())
            .with_context(|| format!("opening {}", root.display()))?;
        Ok(Self {
            root: root.to_path_buf(),
            root_fd,
            slots: HashMap::new(),
            streams: HashMap::new(),
            inodes: if own_numbers { Inodes::lasting() } else { Inodes::fading() },
            directories_by_path: false,
            closed_one: false,
        })
    }

    /// Takes no notice of the inode numbers of directories, see
    /// [`belay_fixtures::Kind::numbers_directories_by_path`].
    pub fn ignore_numbers_of_directories(&mut self) {
        self.directories_by_path = true;
    }

    /// Forgets what may have been changed by others: everything outside the worker's own tree.
    pub fn forget_shared(&mut self) {
        self.inodes.forget(crate::generate::SHARED);
    }

    /// Carries out one operation.
    pub fn run(&mut self, op: &Op) -> Outcome {
        match self.dispatch(op) {
            Ok(value) => Outcome::Ok(value),
            Err(Fault::Errno(errno)) => Outcome::Err(errno.raw_os_error()),
            Err(Fault::EmptySlot) => Outcome::Void,
        }
    }

    fn dispatch(&mut self, op: &Op) -> Done {
        match op {
            Op::Open { slot, path, how } => self.open(*slot, path, *how),
            Op::Close { slot } => self.close(*slot),
            Op::Dup { from, to } => self.dup(*from, *to),
            Op::Read { slot, len } => self.read(*slot, *len),
            Op::Pread { slot, off, len } => self.pread(*slot, *off, *len),
            Op::Write { slot, len, seed } => self.write(*slot, &bytes(*seed, *len)),
            Op::Pwrite { slot, off, len, seed } => self.pwrite(*slot, *off, &bytes(*seed, *len)),
            Op::Seek { slot, from, off } => self.seek(*slot, *from, *off),
            Op::Ftruncate { slot, len } => self.ftruncate(*slot, *len),
            Op::Fallocate { slot, mode, off, len } => self.fallocate(*slot, *mode, *off, *len),
            Op::Fsync { slot, data_only } => self.fsync(*slot, *data_only),
            Op::CopyRange { from, to, len } => self.copy_range(*from, *to, *len),
            Op::MmapRead { slot } => self.mmap_read(*slot),
            Op::MmapWrite { slot, off, len, seed } => {
                self.mmap_write(*slot, *off, &bytes(*seed, *len))
            }
            Op::Fstat { slot } => self.fstat(*slot),
            Op::Fchmod { slot, mode } => self.fchmod(*slot, *mode),
            Op::Flock { slot, how } => self.flock(*slot, *how),
            Op::RangeLock { slot, owner, how, off, len } => {
                self.range_lock(*slot, *owner, *how, *off, *len)
            }
            Op::TestLock { slot, off, len } => self.test_lock(*slot, *off, *len),
            Op::Truncate { path, len } => self.truncate(path, *len),
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Unlink { path } => self.unlink(path),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Link { from, to } => self.link(from, to),
            Op::Symlink { target, path } => self.symlink(target, path),
            Op::Readlink { path } => self.readlink(path),
            Op::Stat { path, follow } => self.stat(path, *follow),
            Op::Statfs { path } => self.statfs(path),
            Op::Chmod { path, mode } => self.chmod(path, *mode),
            Op::Utimens { path, seconds, nanos } => self.utimens(path, *seconds, *nanos),
            Op::SetXattr { path, name, len, seed, create, replace } => {
                self.set_xattr(path, name, &bytes(*seed, *len), *create, *replace)
            }
            Op::GetXattr { path, name } => self.get_xattr(path, name),
            Op::ListXattr { path } => self.list_xattr(path),
            Op::RemoveXattr { path, name } => self.remove_xattr(path, name),
            Op::WriteFile { path, len, seed } => self.write_file(path, &bytes(*seed, *len)),
            Op::ReadFile { path } => self.read_file(path),
            Op::ListDir { path } => self.list_dir(path),
            Op::DirOpen { slot, path } => self.dir_open(*slot, path),
            Op::DirNext { slot, count } => self.dir_next(*slot, *count),
            Op::DirRest { slot } => self.dir_rest(*slot),
            Op::Fill { path, count } => self.fill(path, *count),
            Op::Purge { path } => self.purge(path),
        }
    }

    fn slot(&self, slot: Slot) -> std::result::Result<&Open, Fault> {
        self.slots.get(&slot).ok_or(Fault::EmptySlot)
    }

    fn absolute(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// The bytes that a seed stands for.
pub fn bytes(seed: u64, len: u32) -> Vec<u8> {
    let mut data = vec![0; len as usize];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

fn data(bytes: &[u8]) -> Value {
    Value::Data { len: bytes.len() as u64, hash: hash(bytes) }
}

fn number(n: usize) -> Value {
    Value::Number(i64::try_from(n).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{OpenHow, RenameHow};

    fn run(e: &mut Executor, op: Op) -> Outcome {
        e.run(&op)
    }

    #[test]
    fn a_small_story() {
        let dir = tempfile::tempdir().unwrap();
        let mut e = Executor::new(dir.path(), true).unwrap();
        let how = OpenHow {
            read: true,
            write: true,
            create: true,
            excl: true,
            mode: 0o644,
            ..OpenHow::default()
        };
        assert_eq!(run(&mut e, Op::Close { slot: 0 }), Outcome::Void);
        assert!(matches!(run(&mut e, Op::Open { slot: 0, path: "f".into(), how }), Outcome::Ok(_)));
        assert_eq!(
            run(&mut e, Op::Open { slot: 1, path: "f".into(), how }),
            Outcome::Err(Errno::EXIST.raw_os_error())
        );
        assert_eq!(
            run(&mut e, Op::Write { slot: 0, len: 5000, seed: 7 }),
            Outcome::Ok(Value::Number(5000))
        );
        assert_eq!(
            run(&mut e, Op::Pread { slot: 0, off: 0, len: 9000 }),
            Outcome::Ok(data(&bytes(7, 5000)))
        );
        assert_eq!(run(&mut e, Op::MmapRead { slot: 0 }), Outcome::Ok(data(&bytes(7, 5000))));
        assert!(matches!(
            run(&mut e, Op::Link { from: "f".into(), to: "g".into() }),
            Outcome::Ok(_)
        ));
        let Outcome::Ok(Value::Attr(attr)) =
            run(&mut e, Op::Stat { path: "g".into(), follow: false })
        else {
            panic!("no attributes")
        };
        assert_eq!(attr.ino_stable, Some(true));
        assert_eq!((attr.size, attr.nlink), (Some(5000), Some(2)));
        let rename = Op::Rename { from: "g".into(), to: "h".into(), how: RenameHow::Plain };
        assert!(matches!(run(&mut e, rename), Outcome::Ok(_)));
        assert!(matches!(run(&mut e, Op::Unlink { path: "f".into() }), Outcome::Ok(_)));
        assert_eq!(
            run(&mut e, Op::ListDir { path: ".".into() }),
            Outcome::Ok(Value::Names(vec!["h".into()]))
        );
    }

    #[test]
    fn a_listing_in_pieces_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let mut e = Executor::new(dir.path(), true).unwrap();
        assert!(matches!(run(&mut e, Op::Fill { path: "z".into(), count: 400 }), Outcome::Ok(_)));
        run(&mut e, Op::DirOpen { slot: 0, path: "z".into() });
        run(&mut e, Op::DirNext { slot: 0, count: 50 });
        let Outcome::Ok(Value::ManyNames { count, repeated, .. }) =
            run(&mut e, Op::DirRest { slot: 0 })
        else {
            panic!("no names")
        };
        assert_eq!(count, 400);
        assert!(repeated.is_empty());
        let Outcome::Ok(Value::Sequence { done, errno, .. }) =
            run(&mut e, Op::Purge { path: "z".into() })
        else {
            panic!("no sequence")
        };
        assert_eq!((done, errno), (400, 0));
        assert!(!dir.path().join("z").exists());
    }
}
