//! Which disk image a process works on, found out by what it has open.
//!
//! All of it may wait for whoever serves a file that the process has open, so it is done by a
//! process apart ([`crate::scout`]). No copy is made of a descriptor of the daemon's: that would
//! keep its locks (flock(2), those of open file descriptions) beyond its end.

use crate::contents::{self, Contents};
use crate::process::readable;
use crate::procfs;
use crate::text::OsText;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Of so many descriptors it is looked what they are.
const MOST: usize = 4096;

/// The path of a disk image that process `pid` (at `process`) has open for writing, and what it
/// holds. A file without a name is none: it goes with the process.
pub fn image(process: BorrowedFd<'_>, pid: u32) -> Option<(OsText, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let mut numbers = entries.flatten().take(MOST).filter_map(|entry| {
        let info = procfs::read_text(entry.path()).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).ok()?);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        (writes && !flags.contains(OFlags::PATH)).then_some(number)
    });
    numbers.find_map(|number| {
        let pinned = pin(process, pid, number)?;
        let stat = fstat(&pinned).ok()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if stat.st_nlink == 0 || !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return None;
        }
        // Opened anew for reading.
        let link = format!("/proc/self/fd/{}", pinned.as_raw_fd());
        match contents::of(Path::new(&link)) {
            Ok(Contents::FileSystem(name)) => {
                Some((fs::read_link(&link).ok()?.into(), name.into()))
            }
            _ => None,
        }
    })
}

/// The file behind descriptor `number` of process `pid`, for nothing but looking. While that lives
/// (at `process`), its number is no other's.
fn pin(process: BorrowedFd<'_>, pid: u32, number: i32) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let pinned = open(format!("/proc/{pid}/fd/{number}"), flags, Mode::empty()).ok()?;
    let has_ended = readable(process, Duration::ZERO);
    (!has_ended).then_some(pinned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Watched;
    use rustix::fd::AsFd;
    use std::fs::{File, OpenOptions};

    #[test]
    fn who_looks_at_a_file_keeps_no_lock_of_its_owners() {
        use rustix::fs::{FlockOperation, flock};
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image");
        let owner = File::create(&path).expect("create");
        flock(&owner, FlockOperation::NonBlockingLockExclusive).expect("locked");
        let me = Watched::open(std::process::id()).expect("me");
        let pinned = pin(me.as_fd(), me.pid, owner.as_raw_fd()).expect("a file");
        drop(owner);
        let other = File::open(&path).expect("open");
        let locked = flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Ok(()), "the owner has closed it");
        assert_eq!(fstat(&pinned).expect("known").st_ino, fstat(&other).expect("known").st_ino);
    }

    #[test]
    fn an_image_is_a_file_system_that_is_open_for_writing() {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = |name: &str| dir.path().join(name);
        let mut text = vec![0; 4096];
        fs::write(at("plain"), &text).expect("write");
        text.get_mut(3..11).expect("long enough").copy_from_slice(b"NTFS    ");
        for name in ["image", "gone"] {
            fs::write(at(name), &text).expect("write");
        }
        let me = Watched::open(std::process::id()).expect("me");
        let ours = || {
            let found = image(me.as_fd(), me.pid)?;
            found.0.as_path().starts_with(dir.path()).then_some(found)
        };
        let write = |name: &str| OpenOptions::new().write(true).open(at(name)).expect("open");
        let (_read, _plain, _gone) = (File::open(at("image")), write("plain"), write("gone"));
        fs::remove_file(at("gone")).expect("remove");
        assert_eq!(ours(), None);
        let _image = write("image");
        assert_eq!(ours(), Some((at("image").into(), "NTFS".to_owned())));
    }
}
