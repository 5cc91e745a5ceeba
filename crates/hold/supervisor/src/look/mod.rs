//! What is at a path, found out without waiting for whoever serves the file system that it is on.
//!
//! The rule: who must answer looks at a path only through this. What the kernel has in memory of a
//! file system of this machine is looked at here, which asks nobody. All else is asked of a process
//! apart ([`crate::scout`]), for which there is a limit.

pub(crate) mod found;
pub(crate) mod local;

pub use found::{FileStat, Found, Links, There};
pub use local::is_local;

use crate::scout::Scouts;
use belay_sys::open_known;
use local::is_place_of_served;
use rustix::fd::BorrowedFd;
use rustix::fs::{CWD, ResolveFlags};
use rustix::io::Errno;
use std::path::Path;

/// Looks for `path`, from the folder on if one is given.
pub fn look(scouts: &Scouts, folder: Option<BorrowedFd<'_>>, path: &Path, links: Links) -> Found {
    let from = folder.unwrap_or(CWD);
    // The kernel asks the server of NFS, whatever is wanted, when a path ends at the mountpoint
    // itself.
    if is_place_of_served(path) {
        return scouts.look(folder, path, links);
    }
    match open_known(from, path, links.flags(), ResolveFlags::empty()) {
        Err(error @ (Errno::NOENT | Errno::NOTDIR)) => Found::Not(error),
        Ok(pinned) if is_local(&pinned) => match FileStat::known(&pinned) {
            Ok(stat) => Found::There(There { pinned, stat, gained: None }),
            Err(error) => Found::Not(error),
        },
        // The kernel does not know now, cannot be asked in this way (before Linux 5.12), or
        // somebody else is to be asked.
        Ok(_) | Err(_) => scouts.look(folder, path, links),
    }
}

/// What a file is that is held.
pub fn look_held(scouts: &Scouts, held: BorrowedFd<'_>) -> Found {
    if !is_local(&held) {
        return scouts.look(Some(held), Path::new(""), Links::Followed);
    }
    let pinned = rustix::io::fcntl_dupfd_cloexec(held, 0);
    match pinned.and_then(|pinned| Ok((FileStat::known(&pinned)?, pinned))) {
        Ok((stat, pinned)) => Found::There(There { pinned, stat, gained: None }),
        Err(error) => Found::Not(error),
    }
}

/// Where the link `path` leads, as far as that is known without asking anybody.
pub fn link_known(path: &Path) -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let flags = Links::Themselves.flags();
    let pinned = open_known(CWD, path, flags, ResolveFlags::empty()).ok()?;
    let is_link = FileStat::known(&pinned).is_ok_and(|stat| stat.is_link());
    if !is_link || !is_local(&pinned) {
        return None;
    }
    let to = rustix::fs::readlinkat(&pinned, c"", Vec::new()).ok()?;
    Some(std::ffi::OsString::from_vec(to.into_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
    use rustix::time::{ClockId, clock_gettime};
    use std::os::unix::fs::symlink;

    /// Has the kernel think that a link was read after it was made. Else it would note at the next
    /// read that it is, which it does not without asking the file system.
    fn is_read_later(link: &Path) {
        let mut times = Timestamps {
            last_access: clock_gettime(ClockId::Realtime),
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        times.last_access.tv_sec += 3600;
        utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times");
    }

    #[test]
    fn what_the_kernel_knows_is_looked_at_without_asking() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "text").expect("write");
        symlink("file", &link).expect("link");
        is_read_later(&link);
        let scouts = Scouts::default();
        // While somebody renames something somewhere, the kernel may not know for a moment.
        let patiently = |look: &dyn Fn() -> Found| {
            let known = |found: &Found| !matches!(found, Found::Unknown);
            (0..1000).map(|_| look()).find(known).unwrap_or(Found::Unknown)
        };
        let at = |path: &Path, links| patiently(&|| look(&scouts, None, path, links));
        let found = at(&link, Links::Followed).there().expect("there");
        assert_eq!((found.stat.size, found.stat.is_link()), (4, false));
        assert_eq!(FileStat::asked(&found.pinned), Ok(found.stat));
        assert_eq!(found.gained(), None);
        let found = at(&link, Links::Themselves).there().expect("there");
        assert!(found.stat.is_link());
        assert_eq!(link_known(&link).as_deref(), Some(Path::new("file")));
        assert_eq!(link_known(&file), None);
        let folder = std::fs::File::open(dir.path()).expect("open");
        let below = || look(&scouts, Some(folder.as_fd()), Path::new("file"), Links::Themselves);
        let found = patiently(&below);
        assert_eq!(found.there().map(|there| there.stat.size), Some(4));
        // The kernel remembers what is not there once somebody has looked.
        let none = dir.path().join("none");
        assert!(std::fs::metadata(&none).is_err());
        assert!(at(&none, Links::Followed).is_absent());
    }
}
