//! Where the journal of an image lies, and who has it.
//!
//! The *homes* of an image are the places where whoever knows nothing but the image looks: beside
//! it, if it is a file, and a folder of belay's own. A home holds the journal itself, or, if the
//! user wants that elsewhere, a symbolic link to it. So a journal is found again wherever it lies.
//!
//! Who has a journal has locked it (flock(2)); of two who want an image one is refused.

use super::behind::Behind;
use super::device::{self, Backing};
use super::error::failed;
use super::error::{Error, JOURNAL};
use super::file::HostFile;
use super::file::beside;
use super::grounds::{self, Ground};
use super::hold::Hold;
use super::kept::Kept;
use super::spot::Spot;
use rustix::fs::{FileType, FlockOperation, Stat, flock};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
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
    /// That file's device and inode number.
    file_id: (u64, u64),
    /// What the image is in the end.
    grounds: Vec<Ground>,
    /// The user whose that is.
    owner: u32,
    asked: Option<PathBuf>,
    /// In the order in which they are tried.
    homes: Vec<PathBuf>,
}

/// A link in a home.
struct Link {
    /// Where it leads to.
    target: PathBuf,
    /// The user whose it is.
    owner: u32,
}

impl Homes {
    /// Those of the image at `image`. `asked`: where the user wants the journal. `folder`: belay's
    /// own.
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
        let own = path.metadata().map_err(wrap)?;
        let meta = own.clone();
        let kind = meta.file_type();
        let sys = Path::new(device::SYS);
        let id = |meta: &Metadata| (meta.dev(), meta.ino());
        let (file, file_id, owner, grounds) = if kind.is_file() {
            (Some(path.clone()), id(&meta), meta.uid(), vec![grounds::of_file(&path, &meta)])
        } else if kind.is_block_device() {
            let found = grounds::grounds(meta.rdev(), Some(path.clone()), sys);
            // A loop device that shows a file is that file: whoever knows either must find the
            // journal.
            match device::backing(meta.rdev(), Some(&path), sys).filter(|backing| backing.is_whole)
            {
                Some(Backing { file, meta, .. }) => (Some(file), id(&meta), meta.uid(), found),
                None => (None, (0, 0), own.uid(), found),
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
        Ok(Self { image: path, meta, file, file_id, grounds, owner, asked, homes })
    }

    /// The image, by the path that everybody calls it.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// What the image is in the end.
    pub fn behind(&self) -> Vec<Behind> {
        self.grounds.iter().map(|ground| ground.behind).collect()
    }

    /// Locks what the image is in the end, for as long as the descriptors last.
    ///
    /// # Errors
    /// [`Error::Taken`] if somebody else has some of it.
    pub fn hold(&self) -> Result<Hold, Error> {
        Hold::take(&self.image, &self.grounds)
    }

    /// What was known of the image when this was made.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// The journals that are there, locked: mostly none, or one. `forget`: links that lead to
    /// nothing are removed.
    ///
    /// # Errors
    /// If one is in use, is not there where it should be, or is not to be trusted.
    pub fn left(&self, forget: bool) -> Result<Vec<Kept>, Error> {
        let mut found: Vec<Kept> = Vec::new();
        let asked = self.asked.iter().filter(|path| !self.homes.contains(path));
        for home in self.homes.iter().chain(asked) {
            let Some(spot) = self.spot(home)? else { continue };
            let link = if self.homes.contains(home) { self.pointer(&spot)? } else { None };
            let path = link.as_ref().map_or(home, |link| &link.target);
            if let Some(known) = found.iter_mut().find(|kept| kept.path == *path) {
                known.pointer = known.pointer.take().or_else(|| link.map(|_| spot));
                continue;
            }
            match link {
                Some(link) => match self.linked(home, &link)? {
                    Some(journal) => {
                        found.push(Kept { journal, path: link.target, pointer: Some(spot) });
                    }
                    None if forget => spot.remove_link(&link.target)?,
                    None => {
                        return Err(Error::Missing {
                            image: self.image.display().to_string(),
                            pointer: home.display().to_string(),
                            journal: link.target.display().to_string(),
                        });
                    }
                },
                None => {
                    let open = || {
                        let fail = |why| failed("open the journal", home, why, JOURNAL);
                        HostFile::journal_in(spot.again().map_err(fail)?)
                    };
                    if let Some(journal) = self.lock(open)? {
                        journal.check_written(true)?;
                        found.push(Kept { journal, path: home.clone(), pointer: None });
                    }
                }
            }
        }
        Ok(found)
    }

    /// The journal that a link in a home leads to, locked. Whoever owns the image can make such a
    /// link to whatever they want: what it leads to must be theirs, or the link must be of somebody
    /// who is trusted; and it must be a journal.
    fn linked(&self, home: &Path, link: &Link) -> Result<Option<HostFile>, Error> {
        let misled = |why: String| Error::Misled {
            pointer: home.display().to_string(),
            journal: link.target.display().to_string(),
            why,
        };
        let own = rustix::process::geteuid().as_raw();
        let is_trusted = link.owner == own || link.owner == 0;
        let is_theirs = |stat: &Stat| {
            let owner = stat.st_uid;
            if owner == link.owner || is_trusted && [own, 0, self.owner].contains(&owner) {
                return Ok(());
            }
            Err(misled(format!("it belongs to user {owner}, and the link to user {}", link.owner)))
        };
        let found = self.lock(|| HostFile::journal_if(&link.target, &is_theirs));
        let found = found.and_then(|found| {
            let Some(journal) = found else { return Ok(None) };
            // A link is made when its journal has been written.
            journal.check_written(false)?;
            Ok(Some(journal))
        });
        found.map_err(|why| match why {
            Error::NotAJournal { .. } => misled("it is not a journal of belay".to_owned()),
            why => why,
        })
    }

    /// Opens the image: what it was when this was made, and nothing else.
    ///
    /// # Errors
    /// Those of open(2), or if the path leads to something else by now.
    pub fn open(&self) -> Result<HostFile, Error> {
        let is_device = self.meta.file_type().is_block_device();
        let known = (self.meta.mode(), self.meta.dev(), self.meta.ino(), self.meta.rdev());
        HostFile::image_if(&self.image, &|stat| {
            let same_kind =
                FileType::from_raw_mode(stat.st_mode) == FileType::from_raw_mode(known.0);
            let same = if is_device {
                stat.st_rdev == known.3
            } else {
                (stat.st_dev, stat.st_ino) == (known.1, known.2)
            };
            if same_kind && same { Ok(()) } else { Err(self.moved()) }
        })
    }

    fn moved(&self) -> Error {
        Error::Moved { image: self.image.display().to_string() }
    }

    /// The user whose the image is.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The journal for what is to come: where the user wants it, else in the first home that takes
    /// it. Made if it is not there, and locked.
    ///
    /// # Errors
    /// If it is in use, or cannot be made.
    pub fn make(&self) -> Result<Kept, Error> {
        if let Some(asked) = &self.asked {
            let journal = self.lock(|| HostFile::create_journal(asked).map(Some))?;
            let journal = journal.ok_or_else(|| self.in_use(asked))?;
            journal.claim(self.owner)?;
            let at_home = self.homes.contains(asked);
            let pointer = if at_home { None } else { self.point_to(asked)? };
            return Ok(Kept { journal, path: asked.clone(), pointer });
        }
        let mut why = "it is a device that nothing tells from others after a restart".to_owned();
        for home in &self.homes {
            match self.make_home(home).and_then(|spot| {
                let journal = self.lock(|| HostFile::create_journal_in(&spot).map(Some))?;
                let journal = journal.ok_or_else(|| self.in_use(home))?;
                journal.claim(self.owner)?;
                Ok(journal)
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
    fn point_to(&self, journal: &Path) -> Result<Option<Spot>, Error> {
        for home in &self.homes {
            if let Some(spot) = self.spot(home)?
                && self.pointer(&spot)?.is_some_and(|link| link.target == journal)
            {
                return Ok(Some(spot));
            }
            let made = self.make_home(home).and_then(|spot| spot.link_to(journal).map(|()| spot));
            match made {
                Ok(spot) => return Ok(Some(spot)),
                Err(error) if is_closed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// A home, its folder held; `None` if that is not there. The folder of a home beside the image
    /// is the one that has the image: not what somebody has put in its place.
    fn spot(&self, home: &Path) -> Result<Option<Spot>, Error> {
        let fail = |why| Err(failed("look for the journal", home, why, JOURNAL));
        let beside = self.file.as_ref().filter(|file| file.parent() == home.parent());
        let Some(name) = beside.and_then(|file| file.file_name()) else {
            return match Spot::of(home) {
                Ok(spot) => Ok(Some(spot)),
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                Err(why) => fail(why),
            };
        };
        let spot = match Spot::without_links(home) {
            Ok(spot) => spot,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(self.moved()),
            Err(why) => return fail(why),
        };
        match spot.stat_of(name) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == self.file_id => Ok(Some(spot)),
            _ => Err(self.moved()),
        }
    }

    /// What a home is, if it is a link.
    fn pointer(&self, home: &Spot) -> Result<Option<Link>, Error> {
        let shown = || home.path.display().to_string();
        let place = match home.look() {
            Ok(place) => place,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(why) => return Err(failed("look for the journal", &home.path, why, JOURNAL)),
        };
        if place.kind() != FileType::Symlink {
            return Ok(None);
        }
        let own = rustix::process::geteuid().as_raw();
        let owner = place.stat().st_uid;
        if owner != own && owner != 0 && owner != self.owner {
            let why = format!("it is a link of user {owner}, who is a stranger to the image");
            return Err(Error::Untrusted { journal: shown(), why });
        }
        let target = place.target().ok().filter(|target| target.is_absolute());
        let link = target.map(|target| Link { target, owner });
        link.map(Some).ok_or_else(|| Error::NotAJournal { journal: shown() })
    }

    /// A home to make something in. Makes its folder if that is in belay's own.
    fn make_home(&self, home: &Path) -> Result<Spot, Error> {
        let fail = |why| failed("make", home, why, JOURNAL);
        let beside = self.file.as_ref().and_then(|file| file.parent());
        let Some(folder) = home.parent().filter(|folder| beside != Some(*folder)) else {
            return self.spot(home)?.ok_or_else(|| fail(Errno::NOENT));
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|why| Error::Io {
            doing: "make the folder",
            what: folder.display().to_string(),
            why,
            next: "name another place with --journal",
        })?;
        let spot = Spot::of(home).map_err(fail)?;
        let stat = spot.folder_stat().map_err(fail)?;
        let own = rustix::process::geteuid().as_raw();
        if (stat.st_uid != own && stat.st_uid != 0) || stat.st_mode & 0o022 != 0 {
            let why = "others may write to it".to_owned();
            return Err(Error::Untrusted { journal: folder.display().to_string(), why });
        }
        Ok(spot)
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

/// Whether nothing can be made there, so that another place is to be tried.
fn is_closed(error: &Error) -> bool {
    let Error::Io { why, .. } = error else { return false };
    matches!(
        why.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotFound
    )
}

/// The name of a journal in belay's folder: the end of a path, for people, and what tells it from
/// others.
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
