//! The stand-in: what a successor finds at its mountpoint where it cannot have a mount table of its
//! own, because its user may not make one.
//!
//! Before it mounts, a FUSE library resolves its mountpoint, looks at it and perhaps lists it. In a
//! successor the mount is there already, and such a look would wait for the very daemon that looks.
//! So until the successor serves, paths at and below the mountpoint mean what the mount covers, by
//! a descriptor that belay holds since before the mount: some daemons show just that. Where that is
//! not known, they mean an empty directory (or file) of belay's. Paths are followed link by link,
//! without ever touching the mount.

use crate::shim::shim;
use belay_sys::{below, follow_up_to};
use rustix::fs::FileType;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is in use: the one load that all other times cost.
static ACTIVE: AtomicU8 = AtomicU8::new(0);
/// The stand-in.
const STANDIN: u8 = 1;
/// The image, by whatever its name leads to ([`crate::exchanged`]).
const IMAGE: u8 = 2;
static PATHS: OnceLock<StandinPaths> = OnceLock::new();

struct StandinPaths {
    mountpoint: Vec<u8>,
    standin: Vec<u8>,
}

/// Puts `standin` in the place of `mountpoint`; both are absolute, the latter free of links. A
/// directory may be named by the link that a descriptor is in `/proc`.
pub(crate) fn use_for(mountpoint: Vec<u8>, mut standin: Vec<u8>) {
    // Calls that follow no links shall look at what that link leads to.
    if let Ok(found) = rustix::fs::stat(standin.as_slice())
        && FileType::from_raw_mode(found.st_mode) == FileType::Directory
    {
        standin.extend_from_slice(b"/.");
    }
    if mountpoint.len() > 1 && PATHS.set(StandinPaths { mountpoint, standin }).is_ok() {
        ACTIVE.fetch_or(STANDIN, Relaxed);
    }
}

/// Has the names of the image mean what they meant at the start.
pub(crate) fn use_image() {
    ACTIVE.fetch_or(IMAGE, Relaxed);
}

#[inline]
fn paths() -> Option<&'static StandinPaths> {
    if ACTIVE.load(Relaxed) & STANDIN != 0 { still_needed() } else { None }
}

#[cold]
fn still_needed() -> Option<&'static StandinPaths> {
    if shim().is_none_or(|shim| shim.host.is_ready()) {
        // It serves, so it may look at its own mount, as it may without belay.
        ACTIVE.fetch_and(!STANDIN, Relaxed);
        return None;
    }
    PATHS.get()
}

/// What to look at instead of `path` (relative to the directory `dir`), if it leads to the mount,
/// or is to lead to the image.
#[inline]
pub(crate) fn instead(dir: i32, path: &CStr, follow: bool) -> Option<CString> {
    if ACTIVE.load(Relaxed) == 0 {
        return None;
    }
    if follow && let Some(image) = image(dir, path) {
        return Some(image);
    }
    in_place(dir, path, follow)
}

/// By what to open the image instead of `path`, if that is its name and leads to another file.
#[inline]
pub(crate) fn image(dir: i32, path: &CStr) -> Option<CString> {
    if ACTIVE.load(Relaxed) & IMAGE == 0 {
        return None;
    }
    shim()?.image.as_ref()?.instead(dir, path)
}

#[cold]
fn in_place(dir: i32, path: &CStr, follow: bool) -> Option<CString> {
    let paths = paths()?;
    let resolved = resolve(dir, path.to_bytes(), follow, &paths.mountpoint)?;
    let below = below(&paths.mountpoint, &resolved)?;
    CString::new([&paths.standin, below].concat()).ok()
}

/// The path without links that `path` stands for, if it leads to the mount.
pub(crate) fn resolved(path: &CStr) -> Option<CString> {
    let paths = paths()?;
    let resolved = resolve(libc::AT_FDCWD, path.to_bytes(), true, &paths.mountpoint)?;
    below(&paths.mountpoint, &resolved)?;
    CString::new(resolved).ok()
}

/// `path` from `dir` on without links, up to where it enters `mountpoint`, and no further
/// ([`follow_up_to`]).
pub(crate) fn resolve(dir: i32, path: &[u8], follow: bool, mountpoint: &[u8]) -> Option<Vec<u8>> {
    follow_up_to(mountpoint, path, follow, || start(dir))
}

/// The path of the directory that relative paths begin at.
fn start(dir: i32) -> Option<Vec<u8>> {
    let path = if dir == libc::AT_FDCWD {
        rustix::process::getcwd(Vec::new()).ok()?
    } else {
        let link = CString::new(format!("/proc/self/fd/{dir}")).ok()?;
        rustix::fs::readlink(&link, Vec::new()).ok()?
    };
    Some(path.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn paths_are_followed_up_to_the_mount_and_not_into_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let real = dir.path().canonicalize().expect("canonical");
        std::fs::create_dir_all(real.join("a/mnt")).expect("mkdir");
        for (to, link) in [("a", "l"), ("a/mnt", "m"), ("loop", "loop"), ("../a/mnt", "a/up")] {
            std::os::unix::fs::symlink(to, real.join(link)).expect("symlink");
        }
        let base = real.as_os_str().as_bytes();
        let mountpoint = [base, b"/a/mnt"].concat();
        let follow = |path: &str, follow: bool| {
            let whole = [base, b"/", path.as_bytes()].concat();
            let found = resolve(libc::AT_FDCWD, &whole, follow, &mountpoint)?;
            Some(String::from_utf8(found.get(base.len()..)?.to_vec()).expect("text"))
        };
        for path in ["a/mnt", "a//./mnt/", "l/mnt", "m", "a/up", "a/../l/mnt/.", "m/x/.."] {
            assert_eq!(follow(path, true).as_deref(), Some("/a/mnt"), "{path}");
        }
        assert_eq!(follow("m", false).as_deref(), Some("/m"));
        assert_eq!(follow("m/x/y", false).as_deref(), Some("/a/mnt/x/y"));
        assert_eq!(follow("a/mnt/../z", true).as_deref(), Some("/a/z"));
        assert_eq!(follow("a/mntx", true).as_deref(), Some("/a/mntx"));
        assert_eq!(follow("loop", true), None);
    }
}
