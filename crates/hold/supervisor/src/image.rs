//! The image of a daemon under the policy `epoch`, as the user has named it: nothing that the
//! daemon says of it is believed.

use crate::handover::Descriptors;
use crate::text::OsText;
use belay_image::journal::{self, Behind, Error, Hold, Homes, HostFile, Kept, Recovered, Spot};
use belay_sys::mailbox;
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What was done at the start about a commit that a power failure had cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtStart {
    /// There was none.
    #[default]
    Nothing,
    /// It had not reached the image, and was dropped.
    Dropped,
    /// It was finished.
    Applied,
}

impl AtStart {
    /// The name as in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Dropped => "dropped",
            Self::Applied => "applied",
        }
    }
}

impl From<&Recovered> for AtStart {
    fn from(done: &Recovered) -> Self {
        match done {
            Recovered::Nothing => Self::Nothing,
            Recovered::Dropped | Recovered::Discarded(_) => Self::Dropped,
            Recovered::Applied(_) => Self::Applied,
        }
    }
}

/// An image, and its journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its path, without links.
    pub path: OsText,
    /// Its device's number; of a device its own.
    pub device: u64,
    /// Its inode number; of a device 0.
    pub inode: u64,
    /// What it is in the end, by whichever path or device.
    #[serde(default)]
    pub behind: Vec<Behind>,
    /// Where its journal lies.
    pub journal: OsText,
    /// The link that leads to the journal.
    pub pointer: Option<OsText>,
    /// What was done at the start.
    pub at_start: AtStart,
}

/// By what an image is known, whatever its path: device and inode.
pub fn identity(meta: &Metadata) -> (u64, u64) {
    if meta.file_type().is_block_device() { (meta.rdev(), 0) } else { (meta.dev(), meta.ino()) }
}

/// Where journals lie that cannot be beside their image. Not the state directory, which mostly does
/// not outlive the system.
pub fn journal_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("BELAY_JOURNAL_DIR") {
        return std::path::absolute(&folder).unwrap_or_else(|_| folder.into());
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/belay/journals".into();
    }
    let home = || set("HOME").map(|home| Path::new(&home).join(".local/state"));
    let state = set("XDG_STATE_HOME").map(PathBuf::from).filter(|state| state.is_absolute());
    state.or_else(home).unwrap_or_else(|| "/var/lib".into()).join("belay/journals")
}

impl Image {
    /// The image of `homes`, whose journal is `journal`.
    pub fn new(homes: &Homes, journal: &Kept, at_start: AtStart) -> Self {
        let (device, inode) = identity(homes.meta());
        Self {
            path: homes.image().into(),
            device,
            inode,
            behind: homes.behind(),
            journal: journal.path().into(),
            pointer: journal.pointer().map(Into::into),
            at_start,
        }
    }

    /// Image and journal, by the descriptors that the keeper holds. Their paths are for messages:
    /// what they lead to by now does not matter.
    ///
    /// # Errors
    /// Those of duplicating a descriptor.
    pub(crate) fn files(&self, fds: &Descriptors) -> io::Result<Files> {
        let again = |fd: &OwnedFd| belay_sys::dup_cloexec(fd.as_fd());
        let path = self.journal.as_path().to_owned();
        let pointer = match &self.pointer {
            Some(pointer) => Spot::held(again(&fds.pointer_folder)?, pointer.as_path()),
            None => None,
        };
        Ok(Files {
            image: HostFile::new(again(&fds.image)?, self.path.as_path().to_owned()),
            journal: HostFile::held(again(&fds.journal)?, again(&fds.journal_folder)?, path),
            pointer,
        })
    }
}

/// The descriptors of an image and its journal, as far as there are some.
#[derive(Debug, Default)]
pub struct ImageFds {
    /// The image.
    pub image: Option<OwnedFd>,
    /// The locks on what it is in the end.
    pub hold: Option<OwnedFd>,
    /// Its journal, locked.
    pub journal: Option<OwnedFd>,
    /// The folder of that.
    pub journal_folder: Option<OwnedFd>,
    /// The folder of the link that leads to it.
    pub pointer_folder: Option<OwnedFd>,
}

impl ImageFds {
    /// Those of the image of `homes`, of its journal, and of what holds it.
    ///
    /// # Errors
    /// Those of open(2) and socketpair(2); if the path leads to another image by now.
    pub fn new(homes: &Homes, journal: Kept, hold: Hold) -> Result<Self, Error> {
        let image = homes.open()?;
        let (journal, journal_folder, pointer_folder) = journal.into_parts();
        let (image, _) = image.into_parts();
        let hold = in_one(&hold.into_fds()).map_err(|why| Error::Io {
            doing: "keep the locks of",
            what: homes.image().display().to_string(),
            why: why.into(),
            next: "raise the limit of open files (ulimit -n)",
        })?;
        let (hold, image, journal) = (Some(hold), Some(image), Some(journal));
        Ok(Self { image, hold, journal, journal_folder, pointer_folder })
    }
}

/// One descriptor that keeps all of these open: a mailbox in which they lie, and that nobody looks
/// into.
fn in_one(fds: &[OwnedFd]) -> rustix::io::Result<OwnedFd> {
    let (post, kept) = mailbox::for_image()?;
    // One at a time: a message has room for one, and a full mailbox says so.
    for fd in fds {
        mailbox::leave(post.as_fd(), fd.as_fd())?;
    }
    Ok(kept)
}

/// An image and its journal, open.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) image: HostFile,
    pub(crate) journal: HostFile,
    pointer: Option<Spot>,
}

impl Files {
    /// Removes the journal, when nothing in it is needed any more.
    ///
    /// # Errors
    /// If it holds something, or those of unlink(2) and fsync(2).
    pub(crate) fn remove_journal(self) -> Result<(), Error> {
        journal::remove(self.journal, self.pointer.as_ref(), &self.image)
    }
}
