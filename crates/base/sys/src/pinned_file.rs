//! What lies at a path, before it is opened: to open a device or a pipe has effects, and may wait.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What was at a path, pinned (`O_PATH`): it is not open, and it is what is opened later, whatever
/// the path names by then.
#[derive(Debug)]
pub struct PinnedFile {
    fd: OwnedFd,
    stat: Stat,
}

impl PinnedFile {
    /// What has that name in `folder`; of a link itself.
    ///
    /// # Errors
    /// Those of open(2) and fstat(2).
    pub fn at(folder: impl AsFd, path: impl Arg) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Self::of(openat(folder, path, flags, Mode::empty())?)
    }

    /// What `path` leads to, also by links.
    ///
    /// # Errors
    /// Those of open(2) and fstat(2).
    pub fn behind(path: impl Arg) -> Result<Self, Errno> {
        Self::of(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&fd)?;
        Ok(Self { fd, stat })
    }

    /// What is known of it.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// What it is.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Where it leads to, if it is a link.
    ///
    /// # Errors
    /// Those of readlink(2).
    pub fn target(&self) -> Result<PathBuf, Errno> {
        let target = readlinkat(&self.fd, c"", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Opens it, without waiting for anybody. `access`: how, and further flags.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(&self, access: OFlags) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        open(format!("/proc/self/fd/{}", self.fd.as_raw_fd()), flags, Mode::empty())
    }
}

/// For what can be asked of what is there without opening it (`O_PATH`).
impl AsFd for PinnedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_was_looked_at_is_what_is_opened() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "one").expect("write");
        symlink(&file, &link).expect("link");
        let itself = PinnedFile::at(CWD, &link).expect("look");
        assert_eq!((itself.kind(), itself.target()), (FileType::Symlink, Ok(file.clone())));
        let behind = PinnedFile::behind(&link).expect("look");
        std::fs::rename(&file, dir.path().join("moved")).expect("move");
        std::fs::write(&file, "other").expect("write");
        assert_eq!(behind.kind(), FileType::RegularFile);
        let opened = behind.open(OFlags::RDONLY).expect("open");
        let mut text = [0; 8];
        assert_eq!(rustix::io::read(&opened, &mut text), Ok(3));
        assert!(text.starts_with(b"one"));
        assert_eq!(PinnedFile::at(CWD, dir.path().join("none")).err(), Some(Errno::NOENT));
    }
}
