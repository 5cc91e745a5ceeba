//! The plain directory.

use crate::posix::acts::{Act, When};
use crate::posix::told::{Moments, Times, Told, Tree, device, sum, tell_extended, tell_times};
use belay_posix::namespace::Set;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The number and the data of a file, if it is one.
pub type Data = Option<(u64, Vec<u8>)>;

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

    /// Opens a file for writing, without following links.
    fn writing(&self, path: &str) -> Result<OwnedFd, Errno> {
        let found = rustix::fs::lstat(self.at(path))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile | FileType::Directory | FileType::Symlink => {}
            // Who opens one of these waits for somebody.
            _ => return Err(Errno::OPNOTSUPP),
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(self.at(path), flags, Mode::empty())
    }

    /// Does something.
    ///
    /// # Errors
    /// Those of the system.
    pub fn act(&self, act: &Act, open: Option<&OwnedFd>) -> Told {
        let mode = Mode::from_raw_mode(0o644);
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let done = match act {
            Act::Create(path) => rustix::fs::open(self.at(path), create, mode).map(|_| ()),
            Act::Mkdir(path) => rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(0o755)),
            Act::Symlink(target, path) => rustix::fs::symlink(target.as_str(), self.at(path)),
            Act::Link(path, new) => {
                rustix::fs::linkat(CWD, self.at(path), CWD, self.at(new), AtFlags::empty())
            }
            Act::Unlink(path) => rustix::fs::unlink(self.at(path)),
            Act::Rmdir(path) => rustix::fs::rmdir(self.at(path)),
            Act::Rename(path, new, how) => {
                let flags = RenameFlags::from_bits_retain(how.flags());
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
            Act::Mknod(path, mode, (major, minor)) => rustix::fs::mknodat(
                CWD,
                self.at(path),
                FileType::from_raw_mode(*mode),
                Mode::from_raw_mode(*mode),
                rustix::fs::makedev(*major, *minor),
            ),
            Act::Chown(path, uid, gid) => rustix::fs::chownat(
                CWD,
                self.at(path),
                uid.map(Uid::from_raw),
                gid.map(Gid::from_raw),
                AtFlags::SYMLINK_NOFOLLOW,
            ),
            Act::Utimes(path, accessed, modified) => {
                let times =
                    Timestamps { last_access: time(*accessed), last_modification: time(*modified) };
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::utimensat(CWD, self.at(path), &times, flags)?;
                // If nothing is to be done, nobody looks whether there is such a file.
                if (*accessed, *modified) == (When::Omit, When::Omit) {
                    return Ok(Vec::new());
                }
                let found = rustix::fs::lstat(self.at(path))?;
                return Ok(tell_times(
                    (*accessed, (found.st_atime, found.st_atime_nsec as u32)),
                    (*modified, (found.st_mtime, found.st_mtime_nsec as u32)),
                ));
            }
            Act::Allocate(path, offset, length, flags) => {
                let flags = FallocateFlags::from_bits_retain(*flags);
                rustix::fs::fallocate(self.writing(path)?, flags, *offset, *length)
            }
            Act::SetExtended(path, name, value, how) => {
                let flags = match how {
                    Set::Any => XattrFlags::empty(),
                    Set::Create => XattrFlags::CREATE,
                    Set::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::lsetxattr(self.at(path), name.as_str(), value, flags)
            }
            Act::GetExtended(path, name) => {
                let mut value = vec![0; 65_536];
                let length =
                    rustix::fs::lgetxattr(self.at(path), name.as_str(), value.as_mut_slice())?;
                value.truncate(length);
                return Ok(value);
            }
            Act::RemoveExtended(path, name) => {
                rustix::fs::lremovexattr(self.at(path), name.as_str())
            }
            Act::Open(_) | Act::Close(_) => Ok(()),
        };
        done.map(|()| Vec::new())
    }

    /// Waits until the clock of the files goes on, which need not be fine.
    ///
    /// # Errors
    /// Those of the system.
    pub fn tick(&self) -> Result<(), Errno> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.at, flags, Mode::from_raw_mode(0o600))?;
        let now = || {
            rustix::io::pwrite(&file, b"x", 0)?;
            let found = rustix::fs::fstat(&file)?;
            Ok::<_, Errno>((found.st_mtime, found.st_mtime_nsec))
        };
        let begin = now()?;
        while now()? == begin {}
        Ok(())
    }

    /// The times of all that is there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn moments(&self) -> std::io::Result<Moments> {
        let mut all = Moments::new();
        all.insert(String::new(), moment(&rustix::fs::lstat(&self.at)?));
        walk(&self.at, String::new(), &mut |path, _, found| {
            all.insert(path, moment(found));
            Ok(())
        })?;
        Ok(all)
    }

    /// All that is there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn tree(&self) -> std::io::Result<Tree> {
        let mut all = Tree::new();
        self.each(&mut |path, mut told, data| {
            if let Some((_, data)) = data {
                let _ = write!(told, " {:x}", sum(&data));
            }
            all.insert(path, told);
        })?;
        Ok(all)
    }

    /// Calls `each` with all paths, what is told of them, and the number and the data of those that
    /// are files.
    ///
    /// # Errors
    /// Those of the system.
    pub fn each(&self, each: &mut dyn FnMut(String, String, Data)) -> std::io::Result<()> {
        walk(&self.at, String::new(), &mut |path, at, found| {
            let mut told = tell(found);
            told += &extended(
                |out| rustix::fs::llistxattr(at, out),
                |name, out| rustix::fs::lgetxattr(at, name, out),
            )?;
            let mut data = None;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Symlink => {
                    let _ = write!(told, " {}", std::fs::read_link(at)?.display());
                }
                // Root reads what nobody may.
                FileType::RegularFile => data = Some((found.st_ino, std::fs::read(at)?)),
                _ => {}
            }
            each(path, told, data);
            Ok(())
        })
    }

    /// Replaces the data of a file, which stays as long as it is.
    ///
    /// # Errors
    /// Those of the system.
    pub fn put(&self, path: &str, data: &[u8]) -> Result<(), Errno> {
        rustix::io::pwrite(self.writing(path)?, data, 0).map(|_| ())
    }

    /// What is told of something that is open.
    ///
    /// # Errors
    /// Those of the system.
    pub fn tell_open(&self, file: &OwnedFd) -> Result<String, Errno> {
        let found = rustix::fs::fstat(file)?;
        let mut told = tell(&found);
        told += &extended(
            |out| rustix::fs::flistxattr(file, out),
            |name, out| rustix::fs::fgetxattr(file, name, out),
        )?;
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
    let _ = write!(told, " of {}:{}", found.st_uid, found.st_gid);
    if matches!(kind, FileType::BlockDevice | FileType::CharacterDevice) {
        let number = (rustix::fs::major(found.st_rdev), rustix::fs::minor(found.st_rdev));
        let _ = write!(told, " device {:x}", device(number));
    }
    if kind != FileType::Directory {
        let _ = write!(told, " {} bytes", found.st_size);
    }
    told
}

fn extended(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<String, Errno> {
    let mut room = vec![0; 65_536];
    let length = list(&mut room)?;
    let names = room[..length].to_vec();
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let length = get(name, &mut room)?;
        all.push((name.to_vec(), room[..length].to_vec()));
    }
    Ok(tell_extended(all))
}

/// Calls `each` with the path of all that is in and below a directory, where it is, and what is
/// known of it.
fn walk(
    directory: &Path,
    path: String,
    each: &mut dyn FnMut(String, &Path, &Stat) -> std::io::Result<()>,
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = rustix::fs::lstat(entry.path())?;
        let path = format!("{path}/{}", entry.file_name().to_string_lossy());
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            walk(&entry.path(), path.clone(), each)?;
        }
        each(path, &entry.path(), &found)?;
    }
    Ok(())
}

fn moment(found: &Stat) -> (u64, Times) {
    let modified = (found.st_mtime, found.st_mtime_nsec as u32);
    (found.st_ino, [modified, (found.st_ctime, found.st_ctime_nsec as u32)])
}

fn time(when: When) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match when {
        When::Omit => special(rustix::fs::UTIME_OMIT),
        When::Now => special(rustix::fs::UTIME_NOW),
        When::At(tv_sec, nanoseconds) => Timespec { tv_sec, tv_nsec: nanoseconds.into() },
    }
}
