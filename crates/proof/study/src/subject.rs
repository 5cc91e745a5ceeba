//! What the study must know of a mounted daemon, and of where such mounts come from.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::operation::User;
use crate::snapshot::{Look, Snapshot};

/// A mounted daemon. Dropping it takes it away, by force if need be.
pub trait Subject {
    /// The directory of the mount in which each experiment gets one of its own.
    fn root(&self) -> &Path;

    /// The process that serves now.
    ///
    /// # Errors
    /// If there is none, or nobody knows.
    fn daemon_pid(&self) -> Result<u32>;

    /// The process that holds the daemon, if it is held.
    ///
    /// # Errors
    /// If there is none, or nobody knows.
    fn supervisor_pid(&self) -> Result<u32> {
        bail!("nobody holds the daemon")
    }

    /// The files that whoever holds the daemon brings its writes to.
    fn commit_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What whoever holds the daemon has said of its end, or of its own, in a word. To be asked
    /// once, after a crash.
    fn noticed(&self) -> Option<String> {
        None
    }

    /// Whether the file system's own checker was content with what [`Subject::look_behind`] has had
    /// it look at.
    fn checked(&self) -> Option<bool> {
        None
    }

    /// Who does the work.
    fn user(&self) -> User;

    /// Whether inode numbers tell which names are one file.
    fn numbers_tell_links(&self) -> bool;

    /// Has what it keeps in memory be stored, so that nothing but what is asked of it next has it
    /// do something.
    ///
    /// # Errors
    /// If that fails.
    fn store(&self) -> Result<()> {
        Ok(())
    }

    /// Whether no request waits for the daemon.
    fn is_idle(&self) -> bool;

    /// Lets everybody go who waits for the mount, which is lost.
    fn abandon(&self);

    /// An experiment's tree as it is seen by another way than this mount, if there is one. That may
    /// be the end of the mount.
    ///
    /// # Errors
    /// If it cannot be seen, or a checker has something against what is there.
    fn look_behind(&self, name: &str, look: Look) -> Result<Option<Snapshot>>;

    /// Whether somebody else (a server) may still be busy when a bare daemon is dead.
    fn has_server(&self) -> bool {
        false
    }
}

/// Where subjects come from.
pub trait Source {
    /// What it makes.
    type Subject: Subject;

    /// Starts one.
    ///
    /// # Errors
    /// If the daemon does not mount.
    fn start(&mut self) -> Result<Self::Subject>;

    /// Takes one away in order.
    ///
    /// # Errors
    /// If it does not go.
    fn stop(&mut self, subject: Self::Subject) -> Result<()>;

    /// Whether a subject can be used for several experiments.
    fn is_reusable(&self) -> bool;

    /// Whether the daemon is on its own, so that its crash is the end of the mount.
    fn is_bare(&self) -> bool;
}
