//! A journal that was found or made, and that nobody else has.

use super::error::{AGAIN, Error, io};
use super::file::HostFile;
use super::mark::inspect_header;
use super::progress::Progress;
use super::recover::{Found, How, Recovered, inspect, recover};
use super::spot::Spot;
use super::storage::Storage;
use rustix::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A journal that is there, and locked as long as this lives.
#[derive(Debug)]
pub struct Kept {
    pub(super) journal: HostFile,
    pub(super) path: PathBuf,
    pub(super) pointer: Option<Spot>,
}

impl Kept {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The link by which it is found.
    pub fn pointer(&self) -> Option<&Path> {
        self.pointer.as_ref().map(|spot| spot.path.as_path())
    }

    /// The journal.
    pub fn journal(&self) -> &HostFile {
        &self.journal
    }

    /// The descriptors that stand for it: the journal, with the lock, its folder, and that of the
    /// link.
    pub fn into_parts(self) -> (OwnedFd, Option<OwnedFd>, Option<OwnedFd>) {
        let (journal, folder) = self.journal.into_parts();
        (journal, folder, self.pointer.map(Spot::into_folder))
    }

    /// See [`inspect`].
    ///
    /// # Errors
    /// Those of [`inspect`].
    pub fn inspect(&self, progress: &mut dyn FnMut(Progress)) -> Result<Found, Error> {
        inspect(&self.journal, progress)
    }

    /// See [`recover()`].
    ///
    /// # Errors
    /// Those of [`recover()`].
    pub fn recover(
        &self,
        image: &HostFile,
        how: How,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Recovered, Error> {
        recover(&self.journal, image, how, progress)
    }

    /// Removes it, and what leads to it, when nothing in it is needed any more.
    ///
    /// # Errors
    /// [`Error::InUse`], or those of unlink(2) and fsync(2).
    pub fn remove(self, image: &HostFile) -> Result<(), Error> {
        remove(self.journal, self.pointer.as_ref(), image)
    }
}

/// Removes a journal of `image`, and the link that leads to it, when nothing in it is needed any
/// more.
///
/// # Errors
/// [`Error::InUse`], or those of unlink(2) and fsync(2).
pub fn remove(journal: HostFile, pointer: Option<&Spot>, image: &HostFile) -> Result<(), Error> {
    if !inspect_header(&journal)?.is_empty() {
        return Err(Error::InUse { journal: journal.name() });
    }
    // First, so that it never leads to nothing; of an empty journal nobody need know.
    image.sync().map_err(io("make durable", image, AGAIN))?;
    pointer.map_or(Ok(()), |pointer| pointer.remove_link(&journal.path))?;
    journal.remove_journal(image)
}
