//! Files that others may have made, or may exchange while they are read.
//!
//! The rule: what is read by its name is opened in a way that neither waits nor has an effect, is a regular file, and has a
//! limit. A pipe, a device or an endless file in its place is an error, not a reader that hangs.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// This user's and root's, by a name that is no link: what belay itself has written.
    Own,
    /// Anybody's, also by a link: what the user has named.
    Anybody,
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// Those of open(2) and read(2); if it is no regular file, too large, or somebody else's.
pub fn read(path: &Path, from: From, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open_regular(path, from)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// The same of text.
///
/// # Errors
/// Those of [`read`], or if it is not UTF-8.
pub fn read_text(path: &Path, from: From, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, from, most)?).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Opens a regular file for reading.
///
/// # Errors
/// Those of open(2); if it is no regular file, or somebody else's.
pub fn open_regular(path: &Path, from: From) -> io::Result<File> {
    // To open a device or a pipe has effects: first it is found out what this is.
    let link = if from == From::Own { OFlags::NOFOLLOW } else { OFlags::empty() };
    let place: OwnedFd = open(path, OFlags::PATH | OFlags::CLOEXEC | link, Mode::empty())?;
    let stat = fstat(&place)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no regular file"));
    }
    let own = rustix::process::geteuid().as_raw();
    if from == From::Own && stat.st_uid != own && stat.st_uid != 0 {
        return Err(io::Error::other(format!("it belongs to user {}", stat.st_uid)));
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(open(again, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let dir = tempfile::tempdir().expect("tempdir");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").expect("write");
        symlink(at("file"), at("link")).expect("link");
        symlink("/dev/zero", at("zero")).expect("link");
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("fifo");
        assert_eq!(read_text(&at("file"), From::Own, 4).expect("read"), "text");
        assert_eq!(read(&at("link"), From::Anybody, 4).expect("read"), b"text");
        assert!(read(&at("file"), From::Own, 3).is_err(), "too large");
        assert!(read(&at("link"), From::Own, 4).is_err(), "a link");
        for name in ["fifo", "zero", ".", "none"] {
            assert!(read(&at(name), From::Own, 4).is_err(), "{name}");
            assert!(read(&at(name), From::Anybody, 4).is_err(), "{name}");
        }
    }
}
