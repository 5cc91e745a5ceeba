//! Files that others may have made, or may exchange while they are read.
//!
//! The rule: what is read by its name is opened in a way that neither waits nor has an effect, is a
//! regular file, and has a limit. A pipe, a device or an endless file in its place is an error, not
//! a reader that hangs. What it is, and whose, is known before it is opened ([`PinnedFile`]).

use crate::text;
use belay_sys::PinnedFile;
use rustix::fs::{CWD, FileType, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// This user's and root's, by a name that is no link: what belay itself has written.
    Own,
    /// That user's besides: what belay may have written for them.
    OwnOr(u32),
    /// Anybody's, also by a link: what the user has named.
    Anybody,
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// Those of open(2) and read(2); if it is no regular file, too large, or somebody else's.
pub fn read(path: &Path, from: From, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other(format!("it has more than {}", text::bytes(most)));
    read_if(path, from, most)?.ok_or_else(too_large)
}

/// The same; nothing if it has more than `most` bytes.
///
/// # Errors
/// Those of open(2) and read(2); if it is no regular file, or somebody else's.
pub fn read_if(path: &Path, from: From, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = open_regular(path, from)?;
    // One that is far too large is not read at all; one that grows meanwhile is found out by the
    // rest.
    if file.metadata()?.len() > most {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((read as u64 <= most).then_some(bytes))
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
    open_regular_for(path, from, OFlags::RDONLY)
}

/// The same for what `access` says.
///
/// # Errors
/// Those of [`open_regular`].
pub fn open_regular_for(path: &Path, from: From, access: OFlags) -> io::Result<File> {
    let own = rustix::process::geteuid().as_raw();
    let (pinned, owners) = match from {
        From::Anybody => (PinnedFile::behind(path)?, None),
        From::Own => (PinnedFile::at(CWD, path)?, Some([0, own, own])),
        From::OwnOr(user) => (PinnedFile::at(CWD, path)?, Some([0, own, user])),
    };
    if pinned.kind() != FileType::RegularFile {
        return Err(io::Error::other("it is no regular file"));
    }
    let owner = pinned.stat().st_uid;
    if owners.is_some_and(|owners| !owners.contains(&owner)) {
        return Err(io::Error::other(format!("it belongs to user {owner}")));
    }
    Ok(File::from(pinned.open(access)?))
}

/// Opens a regular file or a block device for reading, whosever it is: what the user has named and
/// a daemon is to work on.
///
/// # Errors
/// Those of open(2); if it is something else.
pub fn open_store(path: &Path) -> io::Result<File> {
    let pinned = PinnedFile::behind(path)?;
    match pinned.kind() {
        FileType::RegularFile | FileType::BlockDevice => {
            Ok(File::from(pinned.open(OFlags::RDONLY)?))
        }
        _ => Err(io::Error::other("it is neither a file nor a block device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, mknodat};
    use std::os::unix::fs::lchown;
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
        assert_eq!(read_if(&at("file"), From::Own, 3).expect("a file"), None);
        assert!(read(&at("link"), From::Own, 4).is_err(), "a link");
        for name in ["fifo", "zero", ".", "none"] {
            assert!(open_store(&at(name)).is_err(), "{name}");
            assert!(read(&at(name), From::Own, 4).is_err(), "{name}");
            assert!(read(&at(name), From::Anybody, 4).is_err(), "{name}");
        }
        assert!(open_store(&at("link")).is_ok());
        if lchown(at("file"), Some(1), None).is_err() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        assert!(read(&at("file"), From::Own, 4).is_err(), "somebody else's");
        assert!(read(&at("file"), From::OwnOr(2), 4).is_err(), "somebody else's");
        assert_eq!(read(&at("file"), From::OwnOr(1), 4).expect("read"), b"text");
        assert!(read(&at("link"), From::OwnOr(1), 4).is_err(), "a link");
    }
}
