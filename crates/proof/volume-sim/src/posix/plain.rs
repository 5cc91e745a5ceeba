//! The plain directory.

use crate::posix::acts::Act;
use crate::posix::told::{Tree, sum};
use belay_posix::namespace::Rename;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A plain directory.
#[derive(Debug)]
pub struct Plain {
    /// Where it is.
    at: PathBuf,
}

impl Plain {
    /// That one, which is empty.
    pub fn new(at: &Path) -> Self {
        Self { at: at.to_owned() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.at.join(path)
    }

    /// Opens a file or a directory, but nothing else, and no link.
    pub fn open(&self, path: &str) -> Result<OwnedFd, Errno> {
        let found = rustix::fs::lstat(self.at(path))?;
        let flags = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => OFlags::RDWR,
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(self.at(path), flags, Mode::empty())
    }

    fn writing(&self, path: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(self.at(path), flags, Mode::empty())
    }

    /// Does something.
    ///
    /// # Errors
    /// Those of the system.
    pub fn act(&self, act: &Act, open: Option<&OwnedFd>) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(0o644);
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match act {
            Act::Create(path) => rustix::fs::open(self.at(path), create, mode).map(|_| ()),
            Act::Mkdir(path) => rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(0o755)),
            Act::Symlink(target, path) => rustix::fs::symlink(target.as_str(), self.at(path)),
            Act::Link(path, new) => {
                rustix::fs::linkat(CWD, self.at(path), CWD, self.at(new), AtFlags::empty())
            }
            Act::Unlink(path) => rustix::fs::unlink(self.at(path)),
            Act::Rmdir(path) => rustix::fs::rmdir(self.at(path)),
            Act::Rename(path, new, how) => {
                let flags = match how {
                    Rename::Replace => RenameFlags::empty(),
                    Rename::NoReplace => RenameFlags::NOREPLACE,
                    Rename::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, self.at(path), CWD, self.at(new), flags)
            }
            Act::Write(path, offset, data) => {
                rustix::io::pwrite(self.writing(path)?, data, *offset).map(|_| ())
            }
            Act::Truncate(path, size) => rustix::fs::ftruncate(self.writing(path)?, *size),
            Act::Chmod(path, mode) => {
                let found = rustix::fs::lstat(self.at(path))?;
                match FileType::from_raw_mode(found.st_mode) {
                    // Linux has no permissions of links.
                    FileType::Symlink => Err(Errno::LOOP),
                    _ => rustix::fs::chmod(self.at(path), Mode::from_raw_mode(*mode)),
                }
            }
            Act::WriteOpen(_, offset, data) => {
                rustix::io::pwrite(open.ok_or(Errno::BADF)?, data, *offset).map(|_| ())
            }
            Act::CreateIn(_, name) => {
                rustix::fs::openat(open.ok_or(Errno::BADF)?, name, create, mode).map(|_| ())
            }
            Act::Open(_) | Act::Close(_) => Ok(()),
        }
    }

    /// All that is there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn tree(&self) -> std::io::Result<Tree> {
        let mut all = Tree::new();
        walk(&self.at, String::new(), &mut all)?;
        Ok(all)
    }

    /// What is told of something that is open.
    ///
    /// # Errors
    /// Those of the system.
    pub fn tell_open(&self, file: &OwnedFd) -> Result<String, Errno> {
        let found = rustix::fs::fstat(file)?;
        let mut told = tell(&found);
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            let mut data = vec![0; usize::try_from(found.st_size).unwrap_or_default() + 1];
            let length = rustix::io::pread(file, data.as_mut_slice(), 0)?;
            let _ = write!(told, " {:x}", sum(&data[..length]));
        }
        Ok(told)
    }
}

fn tell(found: &Stat) -> String {
    let kind = FileType::from_raw_mode(found.st_mode);
    let mut told = format!("{:o} {} links", found.st_mode, found.st_nlink);
    if kind != FileType::Directory {
        let _ = write!(told, " {} bytes", found.st_size);
    }
    told
}

fn walk(directory: &Path, path: String, all: &mut Tree) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = rustix::fs::lstat(entry.path())?;
        let path = format!("{path}/{}", entry.file_name().to_string_lossy());
        let mut told = tell(&found);
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => walk(&entry.path(), path.clone(), all)?,
            FileType::Symlink => {
                let _ = write!(told, " {}", std::fs::read_link(entry.path())?.display());
            }
            FileType::RegularFile => {
                // Root reads what nobody may.
                let _ = write!(told, " {:x}", sum(&std::fs::read(entry.path())?));
            }
            _ => {}
        }
        all.insert(path, told);
    }
    Ok(())
}
