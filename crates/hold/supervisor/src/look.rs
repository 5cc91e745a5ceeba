//! What is at a path, found out without waiting for whoever serves the file system that it is on.
//!
//! The rule: who must answer looks at a path only through this. What the kernel has in memory of a file system of this machine
//! is looked at here, which asks nobody. All else is asked of a process apart ([`crate::scout`]), for which there is a limit.

use crate::mounts;
use crate::rights;
use crate::scout::Scouts;
use belay_sys::open_known;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, OFlags, ResolveFlags, StatxFlags, makedev, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The number of its file system.
    pub device: u64,
    /// Its own number there.
    pub inode: u64,
    /// Its length.
    pub size: u64,
    /// Its kind and rights.
    pub mode: u32,
    /// When its content was last changed: seconds, and nanoseconds.
    pub modified: (i64, u32),
    /// When anything of it was last changed.
    pub changed: (i64, u32),
}

impl Facts {
    /// What the kernel knows of an open file. No server is asked.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn known(file: &impl AsFd) -> rustix::io::Result<Self> {
        Self::of(file, AtFlags::STATX_DONT_SYNC)
    }

    /// What is so now. Its server may be asked, and waited for.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn asked(file: &impl AsFd) -> rustix::io::Result<Self> {
        Self::of(file, AtFlags::empty())
    }

    fn of(file: &impl AsFd, flags: AtFlags) -> rustix::io::Result<Self> {
        let flags = flags | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
        let stat = statx(file, c"", flags, StatxFlags::BASIC_STATS)?;
        let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
        Ok(Self {
            device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            mode: stat.stx_mode.into(),
            modified: time(stat.stx_mtime),
            changed: time(stat.stx_ctime),
        })
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        FileType::from_raw_mode(self.mode).is_symlink()
    }
}

/// Whether links at the end of a path are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// They are.
    Followed,
    /// They are what is looked for.
    Themselves,
}

impl Links {
    /// As open(2) has it, for a place only.
    pub fn flags(self) -> OFlags {
        let place = OFlags::PATH | OFlags::CLOEXEC;
        if self == Self::Followed { place } else { place | OFlags::NOFOLLOW }
    }
}

/// A file that was found.
#[derive(Debug)]
pub struct There {
    /// Its place, which can be run, but not read.
    pub place: OwnedFd,
    /// What is so.
    pub facts: Facts,
    /// Which rights it would give to who runs it, if that was asked already.
    pub gained: Option<Option<String>>,
}

impl There {
    /// Which rights that this process has not it would give to who runs it.
    pub fn gained(&self) -> Option<String> {
        match &self.gained {
            Some(known) => known.clone(),
            // It is on a file system of this machine.
            None => rights::gained_by(self.place.as_fd()).ok().flatten(),
        }
    }
}

/// What is at a path.
#[derive(Debug)]
pub enum Found {
    /// Nobody knows: it is behind the held mount, or whoever serves it does not answer.
    Unknown,
    /// It cannot be had.
    Not(Errno),
    /// This.
    There(There),
}

impl Found {
    /// What is there, if anything is known to be.
    pub fn there(self) -> Option<There> {
        match self {
            Self::There(there) => Some(there),
            Self::Unknown | Self::Not(_) => None,
        }
    }

    /// Whether surely nothing is there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Not(Errno::NOENT | Errno::NOTDIR))
    }
}

/// Looks for `path`, from the folder on if one is given.
pub fn look(scouts: &Scouts, folder: Option<BorrowedFd<'_>>, path: &Path, links: Links) -> Found {
    let from = folder.unwrap_or(CWD);
    // The kernel asks the server of NFS, whatever is wanted, when a path ends at the mountpoint itself.
    if is_place_of_served(path) {
        return scouts.look(folder, path, links);
    }
    match open_known(from, path, links.flags(), ResolveFlags::empty()) {
        Err(error @ (Errno::NOENT | Errno::NOTDIR)) => Found::Not(error),
        Ok(place) if is_local(&place) => match Facts::known(&place) {
            Ok(facts) => Found::There(There { place, facts, gained: None }),
            Err(error) => Found::Not(error),
        },
        // The kernel does not know now, cannot be asked in this way (before Linux 5.12), or somebody else is to be asked.
        Ok(_) | Err(_) => scouts.look(folder, path, links),
    }
}

/// What a file is that is held.
pub fn look_held(scouts: &Scouts, held: BorrowedFd<'_>) -> Found {
    if !is_local(&held) {
        return scouts.look(Some(held), Path::new(""), Links::Followed);
    }
    let place = rustix::io::fcntl_dupfd_cloexec(held, 0);
    match place.and_then(|place| Ok((Facts::known(&place)?, place))) {
        Ok((facts, place)) => Found::There(There { place, facts, gained: None }),
        Err(error) => Found::Not(error),
    }
}

/// Whether what is known of an open file is all that there is to know, as no server has it.
pub fn is_local(file: &impl AsFd) -> bool {
    let Ok(facts) = Facts::known(file) else { return false };
    let number = format!("{}:{}", rustix::fs::major(facts.device), rustix::fs::minor(facts.device));
    let table = mounts::table();
    table.is_ok_and(|table| !table.iter().any(|mount| mount.device == number && mount.is_served()))
}

fn is_place_of_served(path: &Path) -> bool {
    let here = |mount: &mounts::Mount| mount.mountpoint == path.as_os_str().as_encoded_bytes();
    mounts::table().map_or(true, |table| table.iter().any(|mount| mount.is_served() && here(mount)))
}

/// Where the link `path` leads, as far as that is known without asking anybody.
pub fn link_known(path: &Path) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let flags = Links::Themselves.flags();
    let place = open_known(CWD, path, flags, ResolveFlags::empty()).ok()?;
    let is_link = Facts::known(&place).is_ok_and(|facts| facts.is_link());
    if !is_link || !is_local(&place) {
        return None;
    }
    let to = rustix::fs::readlinkat(&place, c"", Vec::new()).ok()?;
    Some(std::ffi::OsString::from_vec(to.into_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_the_kernel_knows_is_looked_at_without_asking() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "text").expect("write");
        symlink("file", &link).expect("link");
        let scouts = Scouts::default();
        let at = |path: &Path, links| look(&scouts, None, path, links);
        let found = at(&link, Links::Followed).there().expect("there");
        assert_eq!((found.facts.size, found.facts.is_link()), (4, false));
        assert_eq!(Facts::asked(&found.place), Ok(found.facts));
        assert_eq!(found.gained(), None);
        let found = at(&link, Links::Themselves).there().expect("there");
        assert!(found.facts.is_link());
        assert_eq!(link_known(&link).as_deref(), Some(Path::new("file")));
        assert_eq!(link_known(&file), None);
        let folder = std::fs::File::open(dir.path()).expect("open");
        let found = look(&scouts, Some(folder.as_fd()), Path::new("file"), Links::Themselves);
        assert_eq!(found.there().map(|there| there.facts.size), Some(4));
        // The kernel remembers what is not there once somebody has looked.
        let none = dir.path().join("none");
        assert!(std::fs::metadata(&none).is_err());
        assert!(at(&none, Links::Followed).is_absent());
    }
}
