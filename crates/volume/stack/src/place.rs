//! Where the processes of a volume meet: a folder of its own in a file system in memory, of which
//! nobody else can read anything.

use anyhow::{Context, Result, bail, ensure};
use belay_sys::{lock_for_process, process_with_lock};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, flock, fstat, mkdirat, statat};
use rustix::io::Errno;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long somebody may look at the lock of a mount, and how soon it is tried again.
const GLANCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);

/// The file that is locked by who mounts the volume.
const MOUNT: &str = "mount.lock";

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The logical layer with its stores.
    Store,
    /// The cache.
    Cache,
    /// The namespace module.
    Namespace,
}

impl Role {
    /// Each of them, the one that needs no other first.
    pub const ALL: [Self; 3] = [Self::Store, Self::Cache, Self::Namespace];

    /// As in command lines, and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Cache => "cache",
            Self::Namespace => "namespace",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The folder of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(PathBuf);

impl Place {
    /// The folder at a path, which is there.
    ///
    /// # Errors
    /// If it is not this user's alone.
    pub fn at(path: &Path) -> Result<Self> {
        check_private(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Whose folder it is, by its name.
    ///
    /// # Errors
    /// If that says nothing.
    pub fn volume(&self) -> Result<[u8; 16]> {
        let name = self.0.file_name().and_then(|name| name.to_str());
        let number =
            name.filter(|name| name.len() == 32).map(|name| u128::from_str_radix(name, 16));
        let Some(Ok(number)) = number else { bail!("{} is no volume's folder", self.0.display()) };
        Ok(number.to_be_bytes())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The memory of the cache.
    pub fn memory(&self) -> PathBuf {
        self.0.join("memory")
    }

    /// Where a process listens.
    pub fn socket(&self, role: Role) -> PathBuf {
        self.0.join(format!("{role}.socket"))
    }

    /// The file that is locked by the process that has a role.
    pub fn lock(&self, role: Role) -> PathBuf {
        self.0.join(format!("{role}.lock"))
    }

    /// The file by which a process shows that it gets on.
    pub fn pulse(&self, role: Role) -> PathBuf {
        self.0.join(format!("{role}.pulse"))
    }

    /// What a process says of how it has recovered.
    pub fn report(&self, role: Role) -> PathBuf {
        self.0.join(format!("{role}.report"))
    }

    pub(crate) fn open_lock(&self, role: Role) -> Result<File> {
        open_private(&self.lock(role))
    }

    pub(crate) fn open_hold(&self) -> Result<File> {
        open_private(&self.0.join(MOUNT))
    }

    /// Makes the caller the one that mounts the volume, for as long as somebody has what this
    /// gives; `None` if another one does.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn hold(&self) -> Result<Option<File>> {
        let file = self.open_hold()?;
        let end = Instant::now() + GLANCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let path = self.path().display();
                    ensure!(
                        fstat(&file).context("cannot look at the lock")?.st_nlink > 0,
                        "{path} was removed just now, by `belay volume forget` or by hand: try again"
                    );
                    return Ok(Some(file));
                }
                // It may be somebody who only looks.
                Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(LOOK),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(why) => return Err(why).context("cannot lock the mount"),
            }
        }
    }

    /// Whether somebody mounts the volume. Nothing is made for that.
    pub fn is_held(&self) -> bool {
        File::open(self.path().join(MOUNT)).is_ok_and(|file| {
            flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
        })
    }

    /// Takes a role; waits until whoever had it has ended. It is this process's for as long as the
    /// file is open.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn take(&self, role: Role) -> Result<File> {
        let file = self.open_lock(role)?;
        loop {
            match lock_for_process(file.as_fd()) {
                Ok(()) => return Ok(file),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => {
                    return Err(why).context(format!("cannot lock {}", self.lock(role).display()));
                }
            }
        }
    }

    /// Which other process has a role.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn holder(&self, role: Role) -> Result<Option<u32>> {
        let file = self.open_lock(role)?;
        Ok(process_with_lock(file.as_fd())?)
    }

    /// Another process that has one of the roles, the uppermost first.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn any_holder(&self) -> Result<Option<(Role, u32)>> {
        for role in Role::ALL.into_iter().rev() {
            if let Some(pid) = self.holder(role)? {
                return Ok(Some((role, pid)));
            }
        }
        Ok(None)
    }
}

/// Opens a file that this user alone can use; it is made if there is none.
pub(crate) fn open_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// Makes a folder that this user alone can use, unless it is there.
pub(crate) fn make_private(path: &Path) -> Result<()> {
    match mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => check_private(path),
        Err(why) => Err(why).with_context(|| format!("cannot make {}", path.display())),
    }
}

fn check_private(path: &Path) -> Result<()> {
    let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("cannot look at {}", path.display()))?;
    let uid = rustix::process::getuid().as_raw();
    ensure!(
        FileType::from_raw_mode(found.st_mode) == FileType::Directory && found.st_uid == uid,
        "{} is not a folder of this user's: remove it",
        path.display()
    );
    ensure!(
        found.st_mode & 0o022 == 0,
        "others may write to {}: take that from them (chmod go-w)",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("place");
        make_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        make_private(&path).unwrap();
        let place = Place::at(&path).unwrap();
        let _held = place.take(Role::Cache).unwrap();
        let held = place.hold().unwrap().unwrap();
        assert!(place.hold().unwrap().is_none());
        drop(held);
        assert!(place.hold().unwrap().is_some());
        assert_eq!(place.holder(Role::Store).unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(Place::at(&path).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(make_private(&link).is_err());
    }
}
