//! Where the journal of an image lies, and who has it.
//!
//! The *homes* of an image are the places where whoever knows nothing but the image looks: beside it, if it
//! is a file, and a folder of belay's own. A home holds the journal itself, or, if the user wants that
//! elsewhere, a symbolic link to it. So a journal is found again wherever it lies.
//!
//! Who has a journal has locked it (flock(2)); of two who want an image one is refused.

use super::device;
use super::error::{Error, JOURNAL, io};
use super::file::{beside, failed, sync_folder};
use super::{Found, HostFile, How, Progress, Recovered, Storage, inspect, inspect_header, recover};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// How often a file that went meanwhile is looked for again.
const TRIES: u32 = 20;

/// An image, and where its journal may lie.
#[derive(Clone, Debug)]
pub struct Homes {
    image: PathBuf,
    meta: Metadata,
    /// The file that the image is, or lies in as a whole.
    file: Option<PathBuf>,
    /// The user whose that is.
    owner: u32,
    asked: Option<PathBuf>,
    /// In the order in which they are tried.
    homes: Vec<PathBuf>,
}

/// A journal that is there, and locked as long as this lives.
#[derive(Debug)]
pub struct Kept {
    journal: HostFile,
    path: PathBuf,
    pointer: Option<PathBuf>,
}

impl Homes {
    /// Those of the image at `image`. `asked`: where the user wants the journal. `folder`: belay's own.
    ///
    /// # Errors
    /// If the image is not there, or is no file and no block device.
    pub fn of(image: &Path, asked: Option<&Path>, folder: &Path) -> Result<Self, Error> {
        let wrap = |why| Error::Io {
            doing: "look at the image",
            what: image.display().to_string(),
            why,
            next: super::error::IMAGE,
        };
        let path = image.canonicalize().map_err(wrap)?;
        let meta = path.metadata().map_err(wrap)?;
        let kind = meta.file_type();
        let sys = Path::new(device::SYS);
        let (file, owner) = if kind.is_file() {
            (Some(path.clone()), meta.uid())
        } else if kind.is_block_device() {
            // A loop device that shows a file is that file: whoever knows either must find the journal.
            match device::backing(meta.rdev(), sys).filter(|backing| backing.is_whole) {
                Some(backing) => (Some(backing.file), backing.meta.uid()),
                None => (None, meta.uid()),
            }
        } else {
            return Err(Error::NotAnImage { image: image.display().to_string() });
        };
        let homes = match &file {
            Some(file) => {
                vec![beside(file), folder.join(name(file.as_os_str(), file.as_os_str().as_bytes()))]
            }
            // Nothing of its path: it may have another one after a restart.
            None => {
                let key = device::key(meta.rdev(), sys);
                key.iter().map(|key| folder.join(name(OsStr::from_bytes(key), key))).collect()
            }
        };
        let asked = asked.map(std::path::absolute).transpose().map_err(wrap)?;
        Ok(Self { image: path, meta, file, owner, asked, homes })
    }

    /// The image, by the path that everybody calls it.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// What was known of the image when this was made.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// The journals that are there, locked: mostly none, or one. `forget`: links that lead to nothing
    /// are removed.
    ///
    /// # Errors
    /// If one is in use, is not there where it should be, or is not to be trusted.
    pub fn left(&self, forget: bool) -> Result<Vec<Kept>, Error> {
        let mut found: Vec<Kept> = Vec::new();
        let asked = self.asked.iter().filter(|path| !self.homes.contains(path));
        for home in self.homes.iter().chain(asked) {
            let target = if self.homes.contains(home) { self.pointer(home)? } else { None };
            let path = target.as_ref().unwrap_or(home);
            if let Some(known) = found.iter_mut().find(|kept| kept.path == *path) {
                known.pointer = known.pointer.take().or_else(|| target.map(|_| home.clone()));
                continue;
            }
            match self.lock(|| HostFile::journal(path))? {
                Some(journal) => {
                    let pointer = target.is_some().then(|| home.clone());
                    found.push(Kept { journal, path: path.clone(), pointer });
                }
                None if target.is_none() => {}
                None if forget => unlink(home)?,
                None => {
                    return Err(Error::Missing {
                        image: self.image.display().to_string(),
                        pointer: home.display().to_string(),
                        journal: path.display().to_string(),
                    });
                }
            }
        }
        Ok(found)
    }

    /// The journal for what is to come: where the user wants it, else in the first home that takes it. Made
    /// if it is not there, and locked.
    ///
    /// # Errors
    /// If it is in use, or cannot be made.
    pub fn make(&self) -> Result<Kept, Error> {
        if let Some(asked) = &self.asked {
            let journal = self.lock(|| HostFile::create_journal(asked).map(Some))?;
            let journal = journal.ok_or_else(|| self.in_use(asked))?;
            let at_home = self.homes.contains(asked);
            let pointer = if at_home { None } else { self.point_to(asked)? };
            return Ok(Kept { journal, path: asked.clone(), pointer });
        }
        let mut why = "it is a device that nothing tells from others after a restart".to_owned();
        for home in &self.homes {
            match self.make_home(home).and_then(|()| {
                let journal = self.lock(|| HostFile::create_journal(home).map(Some))?;
                journal.ok_or_else(|| self.in_use(home))
            }) {
                Ok(journal) => return Ok(Kept { journal, path: home.clone(), pointer: None }),
                Err(error) if is_closed(&error) => why = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoPlace { image: self.image.display().to_string(), why })
    }

    /// Whether a journal is found by whoever knows nothing but the image.
    pub fn is_found(&self, kept: &Kept) -> bool {
        kept.pointer.is_some() || self.homes.contains(&kept.path)
    }

    /// Leaves a link to the journal in the first home that takes one. `None` if none does.
    fn point_to(&self, journal: &Path) -> Result<Option<PathBuf>, Error> {
        for home in &self.homes {
            if self.pointer(home)?.is_some_and(|target| target == journal) {
                return Ok(Some(home.clone()));
            }
            let made = self.make_home(home).and_then(|()| {
                symlink(journal, home).map_err(|why| Error::Io {
                    doing: "make",
                    what: home.display().to_string(),
                    why,
                    next: JOURNAL,
                })
            });
            match made {
                Ok(()) => {
                    sync_folder(home)?;
                    return Ok(Some(home.clone()));
                }
                Err(error) if is_closed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Where a home leads to, if it is a link.
    fn pointer(&self, home: &Path) -> Result<Option<PathBuf>, Error> {
        let shown = || home.display().to_string();
        let meta = match home.symlink_metadata() {
            Ok(meta) => meta,
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(why) => {
                let next = JOURNAL;
                return Err(Error::Io { doing: "look for the journal", what: shown(), why, next });
            }
        };
        if !meta.file_type().is_symlink() {
            return Ok(None);
        }
        let own = rustix::process::geteuid().as_raw();
        let owner = meta.uid();
        if owner != own && owner != 0 && owner != self.owner {
            let why = format!("it is a link of user {owner}, who is a stranger to the image");
            return Err(Error::Untrusted { journal: shown(), why });
        }
        let target = std::fs::read_link(home).ok().filter(|target| target.is_absolute());
        target.map(Some).ok_or_else(|| Error::NotAJournal { journal: shown() })
    }

    /// Makes the folder of a home that is in belay's own.
    fn make_home(&self, home: &Path) -> Result<(), Error> {
        let beside = self.file.as_ref().and_then(|file| file.parent());
        let Some(folder) = home.parent().filter(|folder| beside != Some(*folder)) else {
            return Ok(());
        };
        let wrap = |why| Error::Io {
            doing: "make the folder",
            what: folder.display().to_string(),
            why,
            next: "name another place with --journal",
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(wrap)?;
        let meta = folder.symlink_metadata().map_err(wrap)?;
        let own = rustix::process::geteuid().as_raw();
        if !meta.is_dir() || (meta.uid() != own && meta.uid() != 0) || meta.mode() & 0o022 != 0 {
            let why = "others may write to it".to_owned();
            return Err(Error::Untrusted { journal: folder.display().to_string(), why });
        }
        Ok(())
    }

    fn in_use(&self, journal: &Path) -> Error {
        Error::Locked {
            image: self.image.display().to_string(),
            journal: journal.display().to_string(),
        }
    }

    /// Opens a journal and locks it; `None` if there is none.
    fn lock(
        &self,
        open: impl Fn() -> Result<Option<HostFile>, Error>,
    ) -> Result<Option<HostFile>, Error> {
        for _ in 0..TRIES {
            let Some(journal) = open()? else { return Ok(None) };
            match flock(&journal.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if journal.is_in_place() => return Ok(Some(journal)),
                // Removed by who had it, at its clean end.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(self.in_use(&journal.path)),
                Err(why) => return Err(failed("lock the journal", &journal.path, why, JOURNAL)),
            }
        }
        Ok(None)
    }
}

impl Kept {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The link by which it is found.
    pub fn pointer(&self) -> Option<&Path> {
        self.pointer.as_deref()
    }

    /// The journal.
    pub fn journal(&self) -> &HostFile {
        &self.journal
    }

    /// The descriptor that holds the lock.
    pub fn into_lock(self) -> rustix::fd::OwnedFd {
        self.journal.file
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
        remove(self.journal, self.pointer.as_deref(), image)
    }
}

/// Removes a journal of `image`, and the link that leads to it, when nothing in it is needed any more.
///
/// # Errors
/// [`Error::InUse`], or those of unlink(2) and fsync(2).
pub fn remove(journal: HostFile, pointer: Option<&Path>, image: &HostFile) -> Result<(), Error> {
    if !inspect_header(&journal)?.is_empty() {
        return Err(Error::InUse { journal: journal.name() });
    }
    // First, so that it never leads to nothing; of an empty journal nobody need know.
    image.sync().map_err(io("make durable", image, super::error::AGAIN))?;
    pointer.map_or(Ok(()), unlink)?;
    journal.remove_journal(image)
}

fn unlink(path: &Path) -> Result<(), Error> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => sync_folder(path),
        Err(why) => Err(failed("remove", path, why, JOURNAL)),
    }
}

/// Whether nothing can be made there, so that another place is to be tried.
fn is_closed(error: &Error) -> bool {
    let Error::Io { why, .. } = error else { return false };
    matches!(
        why.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotFound
    )
}

/// The name of a journal in belay's folder: the end of a path, for people, and what tells it from others.
fn name(path: &OsStr, key: &[u8]) -> std::ffi::OsString {
    let plain = |byte: &u8| if byte.is_ascii_alphanumeric() { *byte } else { b'-' };
    let bytes = path.as_bytes();
    let shown = bytes.get(bytes.len().saturating_sub(40)..).unwrap_or(bytes);
    let mut out: Vec<u8> = shown.iter().map(plain).skip_while(|byte| *byte == b'-').collect();
    out.extend(format!(".{:032x}.belay-journal", xxh3_128(key)).bytes());
    std::ffi::OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_images_apart_and_stay_short() {
        let long = format!("/{}/disk.img", "x".repeat(300));
        let names: Vec<_> = ["/srv/disk.img", "/srv/disk-img", long.as_str()]
            .map(|path| name(OsStr::new(path), path.as_bytes()).into_string().unwrap())
            .into();
        assert!(names[0].starts_with("srv-disk-img.") && names[1].starts_with("srv-disk-img."));
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() < 120 && !name.contains('/')));
    }
}
