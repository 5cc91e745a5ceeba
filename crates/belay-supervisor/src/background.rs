//! Mounts that are held in the background: the keeper is not the process that the user has started, but one that this starts, in a
//! session of its own; and what is said goes into a file of limited length.

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::handover::{Descriptors, Link, Note};
use crate::keeper::self_as;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The file in a mount's folder, if no other one was named.
pub const LOG: &str = "log";

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
                let file = rustix::fs::open(&path, flags | OFlags::NOCTTY, Mode::RUSR | Mode::WUSR)
                    .map_err(|error| {
                        let object = path.display().to_string();
                        Error::system("open", object, error, "name another file with --log-file")
                    })?;
                (path, file)
            }
        };
        let file = fs::File::from(file);
        let begin = file.metadata().map_or(0, |meta| meta.len());
        Ok(Self { path, file, begin, is_own: named.is_none() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has come since it was opened, at most the last `most` bytes.
    pub fn said(&self, most: usize) -> String {
        let end = self.file.metadata().map_or(0, |meta| meta.len());
        // One that was cut meanwhile begins anew.
        let begin = if end < self.begin { 0 } else { self.begin };
        let at = begin.max(end.saturating_sub(most as u64));
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(at)).unwrap_or(0)];
        let read = self.file.read_at(&mut bytes, at).unwrap_or(0);
        String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned()
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

/// A keeper that waits for its mount.
#[derive(Debug)]
pub struct Keeper {
    /// Its process.
    pub child: Child,
    link: Link,
}

impl Keeper {
    /// Starts it.
    ///
    /// # Errors
    /// Those of fork and exec.
    pub fn start(verbose: u8, log: &Log) -> Result<Self> {
        let (link, theirs) = Link::pair()?;
        let mut command = self_as("keep", verbose);
        command.stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null());
        command.stderr(Stdio::from(log.dup()?));
        let child = command.spawn().map_err(|error| {
            Error::system("start", "belay's keeper", error, "raise the limit of processes")
        })?;
        Ok(Self { child, link })
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
        assert_eq!((log.said(100).as_str(), log.said(4).as_str()), ("one\ntwo\n", "two\n"));
        other.set_len(0).unwrap();
        other.write_all(b"new\n").unwrap();
        assert_eq!(log.said(100), "new\n");
        log.forget();
        assert!(path.exists(), "it is not belay's own");
        assert!(Log::open(Some(&dir.path().join("no/log")), &folder).is_err());
    }
}
