//! Mounts that are held in the background: the keeper is not the process that the user has started,
//! but one that this starts, in a session of its own; and what is said goes into a file of limited
//! length.

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::handover::{Descriptors, Link, Note};
use crate::role::self_as;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The file in a mount's folder, if no other one was named.
pub const LOG: &str = "log";
const NO_FILE: &str = "it is no regular file, and a log is appended to and kept short";
const REMEDY: &str = "name another file with --log-file";

/// Where keeper, supervisor and daemon talk to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: fs::File,
    /// What was in it before.
    begin: u64,
    is_own: bool,
}

impl Log {
    /// Opens it: the one that was `named`, else one in the mount's own `folder`.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(named: Option<&Path>, folder: &Folder) -> Result<Self> {
        // It is read as well, when it is cut.
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let (path, file) = match named {
            None => (folder.path().join(LOG), folder.open(LOG, flags)?),
            Some(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                let file = open_named(&path, flags)?;
                (path, file)
            }
        };
        let file = fs::File::from(file);
        let begin = file.metadata().map_or(0, |meta| meta.len());
        Ok(Self { path, file, begin, is_own: named.is_none() })
    }

    /// How long it was before.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has come since it was opened: of more than `most` bytes the lines at its end. Says
    /// besides whether that is all.
    pub fn said(&self, most: usize) -> (String, bool) {
        let end = self.file.metadata().map_or(0, |meta| meta.len());
        // One that was cut meanwhile begins anew.
        let begin = if end < self.begin { 0 } else { self.begin };
        let at = begin.max(end.saturating_sub(most as u64));
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(at)).unwrap_or(0)];
        let read = self.file.read_at(&mut bytes, at).unwrap_or(0);
        let bytes = bytes.get(..read).unwrap_or_default();
        let is_all = at == begin;
        // What is cut off begins anywhere.
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let whole = if is_all { bytes } else { bytes.get(line..).unwrap_or_default() };
        (String::from_utf8_lossy(whole).into_owned(), is_all)
    }

    /// Removes it, if it is belay's: what it says was passed on.
    pub fn forget(&self) {
        if self.is_own {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn dup(&self) -> Result<OwnedFd> {
        let file = self.file.try_clone().map(OwnedFd::from);
        file.map_err(|error| Error::system("duplicate", "the log", error, ""))
    }
}

/// The file that the user has named: a regular one, under that name and no other. Who can write to
/// the folder that it is in might have made a link of it, by which belay, perhaps as root, would
/// write to a file that nobody has meant. What was opened is looked at, so nothing can come in
/// between.
fn open_named(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let object = path.display().to_string();
    let refused = |why: &str| Error::refused(object.clone(), why, REMEDY);
    // What is no regular file is not waited for: a FIFO without a reader, say.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(refused("it is a symbolic link, which is not followed")),
        Err(Errno::ISDIR | Errno::NXIO) => return Err(refused(NO_FILE)),
        Err(error) => return Err(Error::system("open", object, error, REMEDY)),
    };
    let stat = rustix::fs::fstat(&file)
        .map_err(|error| Error::system("look at", object.clone(), error, REMEDY))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused(NO_FILE));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        // Who owns it reads what is said, and exchanges it.
        return Err(refused(&format!("it belongs to user {}", stat.st_uid)));
    }
    if stat.st_nlink > 1 {
        return Err(refused("it has another name as well (a hard link), and may be another file"));
    }
    Ok(file)
}

/// A keeper that waits for its mount.
#[derive(Debug)]
pub struct Keeper {
    /// Its process.
    pub child: Child,
    link: Link,
}

impl Keeper {
    /// Starts it. `holds`: what it is to hold, for people ([`crate::config::Config::holds`]).
    ///
    /// # Errors
    /// Those of fork and exec.
    pub fn start(verbose: u8, holds: &OsStr, log: &Log) -> Result<Self> {
        let (link, theirs) = Link::pair()?;
        let mut command = self_as("keep", verbose);
        command.arg(holds);
        command.stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null());
        command.stderr(Stdio::from(log.dup()?));
        let child = command.spawn().map_err(|error| {
            Error::system("start", "belay's keeper", error, "raise the limit of processes")
        })?;
        Ok(Self { child, link })
    }

    /// Has it end, and waits for that.
    pub fn cancel(self) {
        let Self { mut child, link } = self;
        drop(link);
        let _ = child.wait();
    }

    /// Gives it the mount, which is no more this process's then.
    ///
    /// # Errors
    /// If it has ended.
    pub fn hand_over(self, fds: Descriptors) -> Result<Child> {
        let Self { child, link } = self;
        link.send_descriptors(&Note::Begin, &fds).map_err(|error| {
            Error::system("hand the mount to", "belay's keeper", error, "try again")
        })?;
        Ok(child)
    }
}

/// Leaves the terminal and the session of whoever has started this.
pub fn leave_session() {
    // Refused to the leader of a group, which is none that `Keeper::start` has started.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!("no session of its own: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_said_since_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "before\n").unwrap();
        let folder = Folder::own(dir.path()).unwrap();
        let log = Log::open(Some(&path), &folder).unwrap();
        let mut other = fs::File::options().append(true).open(&path).unwrap();
        other.write_all(b"one\ntwo\n").unwrap();
        let said = |most| log.said(most);
        // What is just as long as there is room for is all of it.
        assert_eq!(said(100), ("one\ntwo\n".to_owned(), true));
        assert_eq!(said(8), ("one\ntwo\n".to_owned(), true));
        assert_eq!((said(7), said(5)), (("two\n".to_owned(), false), ("two\n".to_owned(), false)));
        other.set_len(0).unwrap();
        other.write_all(b"new\n").unwrap();
        assert_eq!(log.said(100), ("new\n".to_owned(), true));
        log.forget();
        assert!(path.exists(), "it is not belay's own");
        assert!(Log::open(Some(&dir.path().join("no/log")), &folder).is_err());
    }

    #[test]
    fn a_log_is_a_file_that_nobody_has_led_elsewhere() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::own(dir.path()).unwrap();
        let at = |name: &str| dir.path().join(name);
        let open = |name: &str| Log::open(Some(&at(name)), &folder);
        let refused = |name: &str| open(name).unwrap_err().to_string();
        fs::write(at("theirs"), "theirs").unwrap();
        symlink(at("theirs"), at("link")).unwrap();
        symlink(at("none"), at("nowhere")).unwrap();
        fs::hard_link(at("theirs"), at("other")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::create_dir(at("folder")).unwrap();
        assert!(refused("link").contains("symbolic link"), "{}", refused("link"));
        assert!(refused("nowhere").contains("symbolic link") && !at("none").exists());
        assert!(refused("other").contains("hard link"), "{}", refused("other"));
        for name in ["fifo", "folder", "../../../../../../../../../dev/null"] {
            assert!(refused(name).contains("no regular file"), "{}", refused(name));
        }
        if rustix::process::geteuid().is_root() {
            fs::write(at("others"), "others").unwrap();
            std::os::unix::fs::lchown(at("others"), Some(4242), None).unwrap();
            assert!(refused("others").contains("user 4242"), "{}", refused("others"));
            assert_eq!(fs::read_to_string(at("others")).unwrap(), "others");
        }
        assert_eq!(fs::read_to_string(at("theirs")).unwrap(), "theirs");
        open("new").unwrap();
        assert_eq!(fs::metadata(at("new")).unwrap().permissions().mode() & 0o7777, 0o600);
        fs::write(at("own"), "from before\n").unwrap();
        let log = open("own").unwrap();
        assert_eq!((log.begin(), fs::read_to_string(at("own")).unwrap().len()), (12, 12));
    }
}
