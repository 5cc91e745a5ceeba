//! Whether a file that a daemon has named may be looked at.

use super::maps::Mapped;
use crate::mounts::table::{Mount, table};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// FUSE_SUPER_MAGIC of linux/magic.h.
const FUSE: u64 = 0x6573_5546;
/// OVERLAYFS_SUPER_MAGIC: its maps may show other inode numbers than its files have.
const OVERLAY: u64 = 0x794c_7630;
/// Longer files are not looked at.
const LONGEST: u64 = 1 << 30;

/// The name of the shim's memory file.
pub(crate) const SHIM: &str = "libbelay_shim.so";

/// The shim, which has no path.
static HELD: OnceLock<OwnedFd> = OnceLock::new();

/// Says which memory file the shim is.
pub(crate) fn know_shim(file: OwnedFd) {
    let _ = HELD.set(file);
}

/// The shim for reading, if that is what was mapped.
fn open_shim(mapped: &Mapped) -> Option<File> {
    let name = mapped.path.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?;
    let file = HELD.get().filter(|_| name == SHIM)?;
    let is_it = fstat(file).is_ok_and(|stat| stat.st_ino == mapped.inode);
    // Opened again, as whoever reads it has an offset of its own.
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = || rustix::fs::open(again, flags, Mode::empty()).ok().map(File::from);
    is_it.then(open).flatten()
}

/// Opens a mapped file for reading: a regular file that still is the one that was mapped, and on no
/// file system that somebody else serves. To touch such a one, above all the one that is held, is
/// to wait for that program or machine.
pub(super) fn open(mapped: &Mapped) -> Option<File> {
    if let Some(shim) = open_shim(mapped) {
        return Some(shim);
    }
    open_if(Path::new(&mapped.path), LONGEST, |inode, kind| {
        inode == mapped.inode || kind == OVERLAY
    })
}

/// Opens a regular file of at most `longest` bytes for reading, on no file system that somebody
/// else serves, by a path without links.
pub(crate) fn open_regular(path: &Path, longest: u64) -> Option<File> {
    open_if(path, longest, |_, _| true)
}

/// `is_meant`: whether it is the right one, by its inode number and the type of its file system.
fn open_if(path: &Path, longest: u64, is_meant: impl Fn(u64, u64) -> bool) -> Option<File> {
    if !table().is_ok_and(|table| may_touch(path, &table)) {
        return None;
    }
    // Without links, the path means what the mount table says that it means. And a device's or
    // pipe's opening has effects: first it is found out what this is.
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let place: OwnedFd = openat2(CWD, path, flags, Mode::empty(), resolve).ok()?;
    let (stat, system) = (fstat(&place).ok()?, fstatfs(&place).ok()?);
    let kind = system.f_type as u64;
    let same = is_meant(stat.st_ino, kind);
    let short = u64::try_from(stat.st_size).is_ok_and(|size| size <= longest);
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if kind == FUSE || !regular || !same || !short {
        return None;
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Some(File::from(rustix::fs::open(again, flags, Mode::empty()).ok()?))
}

/// Whether to touch what is on it may be to wait for somebody else. Who waits for a root that a
/// machine serves (virtiofs, 9p) waits with every other program, this one among them.
fn may_not_answer(mount: &Mount) -> bool {
    mount.is_served() && (mount.is_fuse() || mount.mountpoint != b"/")
}

/// Whether a path leads through no file system that somebody else serves or that is mounted on
/// demand.
fn may_touch(path: &Path, table: &[Mount]) -> bool {
    let plain = |part| !matches!(part, std::path::Component::ParentDir);
    let through =
        |mount: &Mount| path.starts_with(Path::new(std::ffi::OsStr::from_bytes(&mount.mountpoint)));
    // Without a table nothing is known.
    !table.is_empty()
        && path.is_absolute()
        && path.components().all(plain)
        && !table.iter().any(|mount| may_not_answer(mount) && through(mount))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn mapped(path: &Path, inode: u64) -> Mapped {
        let path = path.to_str().expect("text").to_owned();
        Mapped { start: 0, end: 1, offset: 0, inode, path }
    }

    #[test]
    fn only_the_very_file_is_opened() {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path().canonicalize().expect("path");
        let (file, link, fifo) = (root.join("file"), root.join("link"), root.join("fifo"));
        std::fs::write(&file, "x").expect("write");
        std::os::unix::fs::symlink(&file, &link).expect("link");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, mode, 0).expect("fifo");
        let inode = |path: &Path| std::fs::symlink_metadata(path).expect("stat").ino();
        assert!(open(&mapped(&file, inode(&file))).is_some());
        assert!(open(&mapped(&file, inode(&file) + 1)).is_none(), "another file by now");
        assert!(open(&mapped(&link, inode(&file))).is_none(), "a link");
        assert!(open(&mapped(&fifo, inode(&fifo))).is_none(), "a pipe");
        assert!(open(&mapped(&root, inode(&root))).is_none(), "a directory");
        assert!(open(&mapped(&root.join("none"), 1)).is_none());
        let long = std::fs::File::create(root.join("long")).expect("create");
        long.set_len(LONGEST + 1).expect("size");
        assert!(open(&mapped(&root.join("long"), inode(&root.join("long")))).is_none());
    }

    #[test]
    fn nothing_that_others_serve_is_touched() {
        let mount = |mountpoint: &str, kind: &str| Mount {
            id: 0,
            parent: 0,
            root: b"/".to_vec(),
            device: "0:1".into(),
            mountpoint: mountpoint.into(),
            kind: kind.into(),
        };
        let mut table = vec![
            mount("/", "ext4"),
            mount("/mnt/a", "fuse.sshfs"),
            mount("/net", "autofs"),
            mount("/home", "nfs4"),
            mount("/srv/c", "cifs"),
        ];
        let may_with = |path: &str, table: &[Mount]| may_touch(Path::new(path), table);
        let may = |path: &str| may_with(path, &table);
        assert!(may("/usr/bin/sshfs") && may("/mnt/ab/c"));
        assert!(!may("/mnt/a/lib.so") && !may("/mnt/a") && !may("/net/x/y"));
        assert!(!may("/usr/../mnt/a/b") && !may("relative"));
        assert!(!may("/home/me/run/a.pid") && !may("/srv/c/a.pid") && may("/srv/a.pid"));
        for (kind, may) in [("virtiofs", true), ("9p", true), ("fuse", false)] {
            table[0].kind = kind.into();
            assert_eq!(may_with("/run/a.pid", &table), may, "a root of {kind}");
        }
        assert!(!may_touch(Path::new("/usr/bin/sshfs"), &[]));
    }
}
