//! A name in a folder that is held by descriptor: the path is resolved once.

use super::error::failed;
use super::error::{self, Error};
use belay_sys::PinnedFile;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, fsync, open, openat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a folder, of which there may be something or nothing.
#[derive(Debug)]
pub struct Spot {
    folder: OwnedFd,
    name: OsString,
    pub(super) path: PathBuf,
}

impl Spot {
    /// The one at `path`. Links on the way are followed, now and never again.
    ///
    /// # Errors
    /// Those of open(2).
    pub(super) fn of(path: &Path) -> Result<Self, Errno> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        Self::within(open(folder, FOLDER, Mode::empty())?, path)
    }

    /// The same of a path without links: one that has come there meanwhile is not followed.
    ///
    /// # Errors
    /// Those of open(2); `ENOTDIR` for a link.
    pub(super) fn without_links(path: &Path) -> Result<Self, Errno> {
        let mut folder = open("/", FOLDER, Mode::empty())?;
        for part in path.parent().ok_or(Errno::INVAL)?.components() {
            match part {
                Component::RootDir => {}
                Component::Normal(name) => {
                    folder = openat(&folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
                }
                _ => return Err(Errno::INVAL),
            }
        }
        Self::within(folder, path)
    }

    fn within(folder: OwnedFd, path: &Path) -> Result<Self, Errno> {
        Self::held(folder, path).ok_or(Errno::INVAL)
    }

    /// The one that `path` names in `folder`.
    pub fn held(folder: OwnedFd, path: &Path) -> Option<Self> {
        Some(Self { folder, name: path.file_name()?.to_owned(), path: path.to_owned() })
    }

    /// The folder.
    pub fn into_folder(self) -> OwnedFd {
        self.folder
    }

    pub(super) fn again(&self) -> Result<Self, Errno> {
        let folder = self.folder.try_clone().map_err(|_| Errno::MFILE)?;
        Ok(Self { folder, name: self.name.clone(), path: self.path.clone() })
    }

    /// Makes a file there, and opens it.
    pub(super) fn create(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        openat(&self.folder, &self.name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
    }

    /// What is there, held and not open.
    pub(super) fn look(&self) -> Result<PinnedFile, Errno> {
        PinnedFile::at(&self.folder, &self.name)
    }

    /// What is known of the folder.
    pub(super) fn folder_stat(&self) -> Result<Stat, Errno> {
        fstat(&self.folder)
    }

    /// What is known of what is there; of a link its own.
    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What is known of another name of the folder.
    pub(super) fn stat_of(&self, name: &OsStr) -> Result<Stat, Errno> {
        statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Makes a link to `target` there, durably.
    pub(super) fn link_to(&self, target: &Path) -> Result<(), Error> {
        rustix::fs::symlinkat(target, &self.folder, &self.name)
            .map_err(|why| failed("make", &self.path, why, error::JOURNAL))?;
        self.sync()
    }

    /// Removes the name, durably.
    pub(super) fn remove(&self, doing: &'static str) -> Result<(), Error> {
        match rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.sync(),
            Err(why) => Err(failed(doing, &self.path, why, error::JOURNAL)),
        }
    }

    /// Removes a link to `target`, durably; what else is there stays.
    pub(super) fn remove_link(&self, target: &Path) -> Result<(), Error> {
        if self.look().and_then(|found| found.target()).is_ok_and(|found| found == target) {
            self.remove("remove")
        } else {
            Ok(())
        }
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> Result<(), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.folder, ".", flags, Mode::empty())
            .and_then(fsync)
            .map_err(|why| failed("make durable the folder of", &self.path, why, error::JOURNAL))
    }
}
