//! The image of a daemon under the policy `epoch`, as the user has named it: nothing that the daemon says of
//! it is believed.

use crate::text::OsText;
use belay_image::journal::{self, Error, Facts, HostFile, Kept, Recovered, Storage};
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What was done at the start about a commit that a loss of power had cut off.
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

/// Where journals lie that cannot be beside their image. Not the state directory, which mostly does not
/// outlive the system.
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
    /// The image at `path`, whose journal is `journal`.
    pub fn new(path: &Path, meta: &Metadata, journal: &Kept, at_start: AtStart) -> Self {
        let (device, inode) = identity(meta);
        Self {
            path: path.into(),
            device,
            inode,
            journal: journal.path().into(),
            pointer: journal.pointer().map(Into::into),
            at_start,
        }
    }

    /// Opens image and journal; makes the journal if somebody has removed it.
    ///
    /// # Errors
    /// Those of open(2), or if another file has taken the image's place.
    pub(crate) fn open(&self) -> Result<(HostFile, HostFile), Error> {
        let image = self.open_image()?;
        Ok((image, HostFile::create_journal(self.journal.as_path())?))
    }

    /// Removes the journal, when nothing in it is needed any more.
    ///
    /// # Errors
    /// If it holds something, or those of unlink(2) and fsync(2).
    pub(crate) fn remove_journal(&self) -> Result<(), Error> {
        let pointer = self.pointer.as_ref().map(OsText::as_path);
        match HostFile::journal(self.journal.as_path())? {
            Some(journal) => journal::remove(journal, pointer, &self.open_image()?),
            None => Ok(()),
        }
    }

    /// Opens the image.
    ///
    /// # Errors
    /// Those of open(2), or if another file has taken the image's place.
    pub(crate) fn open_image(&self) -> Result<HostFile, Error> {
        let image = HostFile::image(self.path.as_path())?;
        let same = |facts: Facts| {
            let inode = if facts.is_device { 0 } else { facts.inode };
            (facts.device, inode) == (self.device, self.inode)
        };
        if image.facts().is_ok_and(same) {
            return Ok(image);
        }
        Err(Error::Misfit {
            what: "what the daemon has written".to_owned(),
            image: self.path.show(),
            why: "another file has taken the image's place".to_owned(),
            next: "put the image back where it was",
        })
    }
}
