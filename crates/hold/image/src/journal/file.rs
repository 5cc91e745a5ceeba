//! The files that a commit works on: an image, and the journal beside it.

use super::device::{self, Backing};
use super::error::{self, Error, failed};
use super::format::Parsed;
use super::mark::{check_trust, inspect_header, mark_empty};
use super::spot::Spot;
use super::storage::{Metadata, Source, Storage};
use belay_memory::Memory;
use belay_sys::{Mapping, PinnedFile};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, FlockOperation, OFlags, SeekFrom, Stat, flock, fstat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

impl Source<HostFile> for Mapping {
    fn load(&self, from: usize, out: &mut [u8]) {
        self.load_unaligned(from, out);
    }

    fn write_to(
        &self,
        file: &HostFile,
        offset: u64,
        pieces: &[(usize, usize)],
    ) -> io::Result<usize> {
        Mapping::write_to(self, file.file.as_fd(), offset, pieces)
            .map_err(io::Error::from_raw_os_error)
    }
}

/// A file or block device of the host. Of a journal the folder is held as well: what is done with
/// its name is done there, whatever its path has come to lead to.
#[derive(Debug)]
pub struct HostFile {
    pub(super) file: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) spot: Option<Spot>,
}

/// Says whether what was found, and is not open yet, is what was looked for.
pub(super) type Check<'c> = &'c dyn Fn(&Stat) -> Result<(), Error>;

/// The journal of an image that is a regular file: `IMAGE.belay-journal`, beside it. That of a
/// device must lie elsewhere: what is beside a device does not outlive the system.
pub fn beside(image: &Path) -> PathBuf {
    let mut name: OsString = image.as_os_str().to_owned();
    name.push(".belay-journal");
    PathBuf::from(name)
}

impl HostFile {
    /// A file that is open already, for reading and writing.
    pub fn new(file: OwnedFd, path: PathBuf) -> Self {
        Self { file, path, spot: None }
    }

    /// The same of a journal, which is at `path` in `folder`.
    pub fn held(file: OwnedFd, folder: OwnedFd, path: PathBuf) -> Self {
        let spot = Spot::held(folder, &path);
        Self { file, path, spot }
    }

    /// The file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// The file, and the folder that it is in.
    pub fn into_parts(self) -> (OwnedFd, Option<OwnedFd>) {
        (self.file, self.spot.map(Spot::into_folder))
    }

    /// Opens an image, by a path without links.
    ///
    /// # Errors
    /// Those of open(2), or if there is something else than a file or a block device.
    pub fn image(path: &Path) -> Result<Self, Error> {
        Self::image_if(path, &|_| Ok(()))
    }

    /// The same if it is the right one. Nothing else is opened: that may have effects.
    pub(super) fn image_if(path: &Path, is_it: Check<'_>) -> Result<Self, Error> {
        let fail = |why| failed("open the image", path, why, error::IMAGE);
        let pinned = PinnedFile::at(CWD, path).map_err(fail)?;
        is_it(pinned.stat())?;
        if !matches!(pinned.kind(), FileType::RegularFile | FileType::BlockDevice) {
            return Err(Error::NotAnImage { image: path.display().to_string() });
        }
        Ok(Self::new(pinned.open(OFlags::RDWR).map_err(fail)?, path.to_owned()))
    }

    /// Opens a journal; `None` if there is none.
    ///
    /// # Errors
    /// Those of open(2), or if there is something else than a file.
    pub fn journal(path: &Path) -> Result<Option<Self>, Error> {
        Self::journal_if(path, &|_| Ok(()))
    }

    /// The same if it is what it should be. Nothing else is opened.
    pub(super) fn journal_if(path: &Path, is_it: Check<'_>) -> Result<Option<Self>, Error> {
        match Spot::of(path) {
            Ok(spot) => Self::journal_in_if(spot, is_it),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(why) => Err(failed("open the journal", path, why, error::JOURNAL)),
        }
    }

    pub(super) fn journal_in(spot: Spot) -> Result<Option<Self>, Error> {
        Self::journal_in_if(spot, &|_| Ok(()))
    }

    fn journal_in_if(spot: Spot, is_it: Check<'_>) -> Result<Option<Self>, Error> {
        let path = spot.path.clone();
        let fail = |why| failed("open the journal", &path, why, error::JOURNAL);
        let pinned = match spot.look() {
            Ok(pinned) => pinned,
            Err(Errno::NOENT) => return Ok(None),
            Err(why) => return Err(fail(why)),
        };
        is_it(pinned.stat())?;
        if pinned.kind() != FileType::RegularFile {
            return Err(Error::NotAJournal { journal: path.display().to_string() });
        }
        let file = pinned.open(OFlags::RDWR).map_err(fail)?;
        Ok(Some(Self { file, path, spot: Some(spot) }))
    }

    /// Opens a journal, and makes an empty file if there is none, durably.
    ///
    /// # Errors
    /// Those of open(2) and fsync(2), or if there is something else than a file.
    pub fn create_journal(path: &Path) -> Result<Self, Error> {
        let spot =
            Spot::of(path).map_err(|why| failed("make the journal", path, why, error::JOURNAL))?;
        Self::create_journal_in(&spot)
    }

    pub(super) fn create_journal_in(spot: &Spot) -> Result<Self, Error> {
        let fail = |why| failed("make the journal", &spot.path, why, error::JOURNAL);
        let again = || spot.again().map_err(fail);
        if let Some(found) = Self::journal_in(again()?)? {
            return Ok(found);
        }
        match spot.create() {
            Ok(file) => {
                spot.sync()?;
                Ok(Self { file, path: spot.path.clone(), spot: Some(again()?) })
            }
            // Somebody else has made it meanwhile.
            Err(Errno::EXIST) => Self::journal_in(again()?)?.ok_or_else(|| fail(Errno::AGAIN)),
            Err(why) => Err(fail(why)),
        }
    }

    /// Makes a file that was made, or was there, and is locked by now, the journal of an image of
    /// `owner`'s. From then on it is known for a journal by what is in it.
    ///
    /// # Errors
    /// If somebody else has put it there, or may need what is in it; those of write(2) and
    /// fsync(2).
    pub(super) fn claim(&self, owner: u32) -> Result<(), Error> {
        check_trust(self, owner)?;
        match inspect_header(self)? {
            Parsed::Empty => Ok(()),
            Parsed::Blank => {
                self.check_new()?;
                mark_empty(self)?;
                self.sync().map_err(error::io("make durable", self, error::JOURNAL))
            }
            _ => Err(Error::InUse { journal: self.name() }),
        }
    }

    /// Refuses what belay has not written. `may_be_new`: it may be a file that was just made, and
    /// has nothing in it yet.
    pub(super) fn check_written(&self, may_be_new: bool) -> Result<(), Error> {
        match inspect_header(self) {
            Ok(Parsed::Blank) if may_be_new => self.check_new(),
            Ok(Parsed::Blank) => Err(Error::NotAJournal { journal: self.name() }),
            // What can be done about it depends on what was asked for.
            Ok(_) | Err(Error::Version { .. }) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Refuses a file without content that has another name: it is somebody's.
    fn check_new(&self) -> Result<(), Error> {
        let stat = fstat(&self.file)
            .map_err(|why| failed("look at the journal", &self.path, why, error::JOURNAL))?;
        if stat.st_nlink < 2 { Ok(()) } else { Err(Error::NotAJournal { journal: self.name() }) }
    }

    /// Removes this journal of `image`, durably, when nothing in it is needed any more. What
    /// another has put in its place stays.
    ///
    /// # Errors
    /// [`Error::InUse`], or those of unlink(2) and fsync(2).
    pub fn remove_journal(self, image: &Self) -> Result<(), Error> {
        image.sync().map_err(error::io("make durable", image, error::AGAIN))?;
        if !inspect_header(&self)?.is_empty() {
            return Err(Error::InUse { journal: self.name() });
        }
        match &self.spot {
            Some(spot) if self.is_in_place() => spot.remove("remove the journal"),
            _ => Ok(()),
        }
    }

    /// Makes sure that this journal has its name: who looks for it must find it, and that it is
    /// locked. One that was removed comes back as a new file, locked before anything is written to
    /// it.
    ///
    /// # Errors
    /// Those of open(2) and flock(2); [`Error::Locked`] if another process has a journal there by
    /// now, and with it the image.
    pub fn keep_in_place(&mut self, image: &Self) -> Result<bool, Error> {
        if self.is_in_place() {
            return Ok(false);
        }
        let Some(spot) = &self.spot else { return Ok(false) };
        let new = Self::create_journal_in(spot)?;
        match flock(&new.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Locked { image: image.name(), journal: new.name() });
            }
            Err(why) => return Err(failed("lock the journal", &self.path, why, error::JOURNAL)),
        }
        let metadata =
            image.metadata().map_err(error::io("look at the image", image, error::IMAGE))?;
        new.claim(metadata.owner)?;
        *self = new;
        Ok(true)
    }

    /// Whether this is the file that has its name.
    pub(super) fn is_in_place(&self) -> bool {
        let there = self.spot.as_ref().map(Spot::stat);
        matches!((fstat(&self.file), there), (Ok(own), Some(Ok(there)))
            if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    }
}

impl Storage for HostFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        let stat = fstat(&self.file)?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        let behind = if is_device {
            device::backing(stat.st_rdev, None, Path::new(device::SYS))
        } else {
            None
        };
        let own = (stat.st_ino, stat.st_mtime as i64, stat.st_uid);
        let (inode, modified, owner) = behind
            .as_ref()
            .map_or(own, |Backing { meta, .. }| (meta.ino(), meta.mtime(), meta.uid()));
        Ok(Metadata {
            length: if is_device {
                rustix::fs::seek(&self.file, SeekFrom::End(0))?
            } else {
                stat.st_size as u64
            },
            device: if is_device { stat.st_rdev } else { stat.st_dev },
            inode,
            modified,
            owner,
            shared: stat.st_mode & 0o022 != 0,
            is_device,
            is_lasting: !is_device || behind.is_some(),
            is_dated: !is_device || behind.is_some_and(|behind| behind.is_whole),
        })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&self.file, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(&self.file, rest, offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&self.file, length))?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&self.file))?)
    }
}
