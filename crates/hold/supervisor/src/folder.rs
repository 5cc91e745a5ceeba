//! A folder that is held: what is done in it is done there, wherever its path leads to by then.
//!
//! What belay writes of its own goes by this, never by a path: whoever exchanges a folder on the
//! way, or puts a link where a file is to be, has nothing written or removed elsewhere.

use crate::error::{Error, Result};
use crate::private;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, chmodat, fchmod, fstat, mkdirat,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const OWNERS: Mode = Mode::RWXU;
const OWN_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const REMEDY: &str = "choose another place with --state-dir or BELAY_STATE_DIR";

/// A folder, held.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// Where it was when it was opened, for messages and for those who have nothing but a path.
    path: PathBuf,
}

impl Folder {
    /// Opens a folder of this user's that nobody else may write to or exchange. `path` is no link.
    ///
    /// # Errors
    /// Those of open(2), and why it is refused.
    pub fn own(path: &Path) -> Result<Self> {
        Self::checked(CWD, path.as_os_str(), path)
    }

    /// The same; made if it is not there, as is the way to it, for this user alone.
    ///
    /// # Errors
    /// Those of [`Folder::own`] and mkdir(2).
    pub fn make_own(path: &Path) -> Result<Self> {
        let failed = |error| creating(path, error);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (mut here, missing) = nearest(path)?;
        let Some(last) = missing.first() else {
            widen(here.as_fd());
            return Self::own(path);
        };
        // Nothing is made where another user chooses where that is.
        private::check_way(here.as_fd(), path, REMEDY)?;
        for name in missing.iter().skip(1).rev() {
            make(here.as_fd(), name).map_err(failed)?;
            here = openat(&here, name, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?;
            widen(here.as_fd());
        }
        make(here.as_fd(), last).map_err(failed)?;
        widen_at(here.as_fd(), last);
        Self::checked(here.as_fd(), last, path)
    }

    /// Whether [`Folder::make_own`] would refuse it; nothing is made.
    ///
    /// # Errors
    /// Those of [`Folder::make_own`].
    pub fn check_own(path: &Path) -> Result<()> {
        let (here, missing) = nearest(path)?;
        if missing.is_empty() {
            return Self::own(path).map(drop);
        }
        private::check_way(here.as_fd(), path, REMEDY)?;
        let may = Access::WRITE_OK | Access::EXEC_OK;
        accessat(&here, ".", may, AtFlags::EACCESS).map_err(|error| creating(path, error))
    }

    fn checked(at: BorrowedFd<'_>, name: &OsStr, shown: &Path) -> Result<Self> {
        let fd = match openat(at, name, OPEN, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let what = shown.display().to_string();
                return Err(Error::refused(what, "it is no directory", REMEDY));
            }
            // One that cannot be read may still tell whose it is.
            Err(Errno::ACCESS) => openat(at, name, OPEN | OFlags::PATH, Mode::empty())
                .map_err(|error| opening(shown, error))?,
            Err(error) => return Err(opening(shown, error)),
        };
        private::check(fd.as_fd(), shown, REMEDY)?;
        // Nobody can exchange what is on this way.
        let path = private::path_of(fd.as_fd()).unwrap_or_else(|| shown.to_owned());
        Ok(Self { fd, path })
    }

    /// One that is held already, and was checked then.
    pub fn held(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd, path }
    }

    /// The folder `name` in it.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        let fd = openat(&self.fd, name, OPEN, Mode::empty());
        Ok(Self { fd: fd.map_err(|error| opening(&path, error))?, path })
    }

    /// The same, made if it is not there, for this user alone.
    ///
    /// # Errors
    /// Those of mkdir(2); if it is somebody else's.
    pub fn make(&self, name: &str) -> Result<Self> {
        self.mkdir(name)?;
        Self::checked(self.fd.as_fd(), OsStr::new(name), &self.path.join(name))
    }

    /// The folder `name` in it, which this makes for this user alone; `None` if there is something
    /// of that name.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn make_new(&self, name: &str) -> Result<Option<Self>> {
        match mkdirat(&self.fd, name, OWNERS) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(error) => return Err(creating(&self.path.join(name), error)),
        }
        widen_at(self.fd.as_fd(), OsStr::new(name));
        Self::checked(self.fd.as_fd(), OsStr::new(name), &self.path.join(name)).map(Some)
    }

    /// Makes the folder `name` in it, if there is nothing of that name.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn mkdir(&self, name: &str) -> Result<()> {
        make(self.fd.as_fd(), OsStr::new(name)).map_err(|error| {
            Error::system("create", self.path.join(name).display().to_string(), error, REMEDY)
        })?;
        widen_at(self.fd.as_fd(), OsStr::new(name));
        Ok(())
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads into it and nowhere else, as long as this lives and in this process.
    pub fn inside(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    /// The folder that it is in, if it has the same name there still.
    pub fn outside(&self) -> Option<Self> {
        let fd = openat(&self.fd, "..", OPEN, Mode::empty()).ok()?;
        let id = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let found = statat(&fd, self.path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_it = id(found) == id(fstat(&self.fd).ok()?);
        is_it.then(|| Self { fd, path: self.path.parent().unwrap_or(Path::new("/")).to_owned() })
    }

    /// Opens a file in it, which is no link; with `flags`, which may make it for this user alone.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.fd, name, flags, OWN_FILE)
            .map_err(|error| opening(&self.path.join(name), error))?;
        if flags.contains(OFlags::CREATE) {
            allow_owner(file.as_fd());
        }
        Ok(file)
    }

    /// Writes a file so that a reader sees the old one or the new one, never a part.
    ///
    /// # Errors
    /// Those of writing and renaming a file.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let new = Path::new(name).with_extension("new");
        let remove = || {
            let _ = unlinkat(&self.fd, &new, AtFlags::empty());
        };
        // One of that name is of a process that was this one's predecessor, and came to no end.
        remove();
        let written = openat(&self.fd, &new, NEW, OWN_FILE)
            .inspect(|file| allow_owner(file.as_fd()))
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(bytes))
            .and_then(|()| Ok(renameat(&self.fd, &new, &self.fd, name)?));
        // No room, for example: nobody is to find an empty file for ever.
        written.inspect_err(|_| remove()).map_err(|error| {
            let object = self.path.join(name).display().to_string();
            Error::system("write", object, error, "make room there or choose another --state-dir")
        })
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        renameat(&self.fd, from, &self.fd, to).map_err(|error| {
            Error::system("set up", self.path.join(to).display().to_string(), error, REMEDY)
        })
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }
}

/// The folder on the way to `path` that is there, and the names of what is missing below it, the
/// last one first.
fn nearest(path: &Path) -> Result<(OwnedFd, Vec<OsString>)> {
    let whole = std::path::absolute(path)
        .map_err(|error| Error::system("create", path.display().to_string(), error, REMEDY))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (mut missing, mut there) = (Vec::new(), whole.as_path());
    loop {
        match openat(CWD, there, flags, Mode::empty()) {
            Ok(folder) => return Ok((folder, missing)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(creating(path, error)),
        }
        let (Some(name), Some(above)) = (there.file_name(), there.parent()) else {
            return Err(creating(path, Errno::NOENT));
        };
        missing.push(name.to_owned());
        there = above;
    }
}

fn creating(path: &Path, error: Errno) -> Error {
    Error::system("create", path.display().to_string(), error, REMEDY)
}

fn make(at: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    match mkdirat(at, name, OWNERS) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// The umask has taken from a new file what its owner needs.
fn allow_owner(file: BorrowedFd<'_>) {
    let _ = fchmod(file, OWN_FILE);
}

/// A folder of this user's that its owner cannot use, as the umask has taken that from it when it
/// was made, becomes one that its owner can use. What cannot be repaired is refused where it is
/// opened.
fn widen(folder: BorrowedFd<'_>) {
    let Ok(stat) = fstat(folder) else { return };
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw()
        && FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if is_own && stat.st_mode & OWNERS.bits() != OWNERS.bits() {
        // By this name, as the descriptor may be one for a path only.
        let here = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777) | OWNERS;
        let _ = chmodat(CWD, here, mode, AtFlags::empty());
    }
}

/// The same of the folder `name`, if that is one and no link.
fn widen_at(at: BorrowedFd<'_>, name: &OsStr) {
    if let Ok(folder) = openat(at, name, OPEN | OFlags::PATH, Mode::empty()) {
        widen(folder.as_fd());
    }
}

fn opening(path: &Path, error: Errno) -> Error {
    Error::system("open", path.display().to_string(), error, REMEDY)
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Folder> for OwnedFd {
    fn from(folder: Folder) -> Self {
        folder.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Whoever can write to the folder above puts another one in its place, and links where files
    /// are to be.
    #[test]
    fn what_is_written_goes_to_the_folder_that_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        let folder = Folder::make_own(&at("state/mnt.1")).unwrap();
        fs::write(at("victim"), "theirs").unwrap();
        fs::rename(at("state"), at("moved")).unwrap();
        fs::create_dir_all(at("state/mnt.1")).unwrap();
        for name in [
            "state/mnt.1/note.json",
            "state/mnt.1/note.new",
            "moved/mnt.1/note.new",
            "moved/mnt.1/note.json",
        ] {
            symlink(at("victim"), at(name)).unwrap();
        }
        folder.put("note.json", b"ours").unwrap();
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "theirs");
        let note = at("moved/mnt.1/note.json");
        assert!(note.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_to_string(note).unwrap(), "ours");
        assert_eq!(folder.outside().unwrap().inside().canonicalize().unwrap(), at("moved"));
        folder.remove("note.json");
        assert!(!at("moved/mnt.1/note.json").exists());
        fs::rename(at("moved/mnt.1"), at("moved/mnt.2")).unwrap();
        assert!(folder.outside().is_none(), "it has another name");
    }

    #[test]
    fn a_folder_that_its_owner_could_not_use_is_repaired() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("state");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        Folder::make_own(&path).unwrap();
        for (narrow, wanted) in [(0, 0o700), (0o500, 0o700), (0o055, 0o755)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(narrow)).unwrap();
            let folder = Folder::make_own(&path).unwrap();
            assert_eq!(mode(&path), wanted);
            folder.make("reports").unwrap();
            fs::set_permissions(path.join("reports"), fs::Permissions::from_mode(narrow)).unwrap();
            folder.make("reports").unwrap();
            assert_eq!(mode(&path.join("reports")), wanted);
        }
    }

    #[test]
    fn a_folder_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        let folder = Folder::make_own(&at("a/b/c")).unwrap();
        assert_eq!(folder.path(), at("a/b/c"));
        symlink(at("a"), at("link")).unwrap();
        assert!(Folder::own(&at("link")).unwrap_err().to_string().contains("it is no directory"));
        assert_eq!(Folder::own(&at("link/b")).unwrap().path(), at("a/b"));
        symlink(at("a"), at("a/b/c/reports")).unwrap();
        assert!(folder.child("reports").is_err() && folder.make("reports").is_err());
        assert!(folder.open("reports", OFlags::RDONLY).is_err());
        assert!(Folder::make_own(&at("none/../x")).is_ok() || !at("x").exists());
    }
}
