//! Which disk image a process works on, found out by what it has open.
//!
//! All of it may wait for whoever serves a file that the process has open, so it is done by a process apart ([`crate::scout`]).

use crate::contents::{self, Contents};
use crate::text::OsText;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::fs;
use std::path::Path;

/// Of so many descriptors it is looked what they are.
const MOST: usize = 4096;

/// The path of a disk image that process `pid` (at `process`) has open for writing, and what it holds. A file without a name is
/// none: it goes with the process.
pub fn image(process: BorrowedFd<'_>, pid: u32) -> Option<(OsText, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let mut numbers = entries.flatten().take(MOST).filter_map(|entry| {
        let info = fs::read_to_string(entry.path()).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).ok()?);
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let number = entry.file_name().to_str()?.parse().ok()?;
        (writes && !flags.contains(OFlags::PATH)).then_some(number)
    });
    numbers.find_map(|number| {
        let copy = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()?;
        let stat = fstat(&copy).ok()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if stat.st_nlink == 0 || !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return None;
        }
        // Opened anew, as the daemon may read only what is aligned, or nothing.
        let link = format!("/proc/self/fd/{}", copy.as_raw_fd());
        match contents::of(Path::new(&link)) {
            Ok(Contents::FileSystem(name)) => {
                Some((fs::read_link(&link).ok()?.into(), name.into()))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Watched;
    use rustix::fd::AsFd;
    use std::fs::{File, OpenOptions};

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
