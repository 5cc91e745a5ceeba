//! Keeping an op-log in a file, where it is safe from the end of belay and of the machine.

use crate::error::Error;
use crate::folder::Folder;
use crate::image::Image;
use belay_image::overlay::{self, Overlay};
use belay_oplog::Oplog;
use belay_oplog::kept::{Head, Step, Text, encode, steps};
use belay_recorder::{Layout, Node, Store};
use belay_sys::Mapping;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags, RenameFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Behind the image's name.
const SUFFIX: &str = ".belay-oplog";
/// Files of one image that are kept.
const MOST: u32 = 1000;

/// What is to be kept of an op-log.
#[derive(Debug)]
pub struct Acknowledged {
    epoch: u64,
    steps: Vec<Step>,
}

impl Acknowledged {
    /// What the recorder has. While a daemon is at work that may be damaged at one time, and whole
    /// at the next.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read(memory: &Arc<Mapping>, layout: Layout) -> Result<Self, String> {
        let overlay = Overlay::new(memory, layout.epochs, overlay::Capacity::MOUNT);
        let epoch = overlay.epoch().map_err(|why| why.to_string())?;
        let at = layout.epochs + overlay::Capacity::MOUNT.words();
        let log = Oplog::look(Arc::clone(memory), at, belay_oplog::Capacity::MOUNT, epoch)
            .map_err(|why| why.to_string())?;
        let root = Store::new(Arc::clone(memory), layout).key(Node::ROOT);
        let steps = steps(&log, root).map_err(|why| why.to_string())?;
        Ok(Self { epoch, steps })
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What operation comes from that record, for people.
    pub fn describe(&self, record: u32) -> Option<String> {
        let step = self.steps.iter().find(|step| step.record == u64::from(record))?;
        let (path, _) = step.operation.paths();
        let path = path.map(Text::show).unwrap_or_default();
        Some(format!("{} \"{path}\"", step.operation.name()))
    }

    /// Writes all of it beside the image, or beside its journal if that is elsewhere, or, if that
    /// cannot be or takes longer than `patience`, into `reports`; durably. Gives the file. `image`
    /// comes with the folder of its journal, which is held since the start: whoever owns a folder
    /// on the way there does not choose where this is written.
    ///
    /// # Errors
    /// Those of writing, in both places.
    pub fn keep(
        self,
        head: Head,
        image: Option<(&Image, BorrowedFd<'_>)>,
        reports: Result<Folder, Error>,
        patience: Duration,
    ) -> Result<PathBuf, String> {
        let path = image.map(|(image, _)| image.path.as_path());
        let name = path.map(|path| Text(path.as_os_str().as_bytes().to_vec())).unwrap_or_default();
        let head = Head { epoch: self.epoch, image: name, ..head };
        let bytes = encode(&head, &self.steps).ok_or("it is too large for a file")?;
        let bytes = Arc::new(bytes);
        let mut failed = String::new();
        if let Some((image, folder)) = image {
            let place = beside(image);
            match put_within(patience, folder, &place, &bytes) {
                Ok(path) => return Ok(path),
                Err(why) => failed += &format!("{}: {why}; ", place.display()),
            }
        }
        let folder = reports.map_err(|why| format!("{failed}{why}"))?;
        let place = folder.path().join(SUFFIX.trim_start_matches('.'));
        match put(folder.as_fd(), &place, &bytes) {
            Ok(path) => return Ok(path),
            Err(why) => failed += &format!("{}: {why}; ", place.display()),
        }
        Err(failed.trim_end_matches("; ").to_owned())
    }
}

/// Where the first op-log of an image is kept: always in the folder of its journal.
fn beside(image: &Image) -> PathBuf {
    let (path, journal) = (image.path.as_path(), image.journal.as_path());
    let here = if path.parent() == journal.parent() { path } else { journal };
    let mut place = here.as_os_str().to_owned();
    place.push(SUFFIX);
    PathBuf::from(place)
}

/// The op-logs that are kept beside an image, or beside its journal, as far as that folder can be
/// read: such names as [`put`] gives, and so a bounded number.
pub fn kept_beside(image: &Image) -> Vec<PathBuf> {
    let first = beside(image);
    let (Some(folder), Some(name)) = (first.parent(), first.file_name()) else { return Vec::new() };
    let number = |path: &PathBuf| {
        let rest = path.file_name()?.as_bytes().strip_prefix(name.as_bytes())?;
        let number = match rest.strip_prefix(b".") {
            Some(digits) => std::str::from_utf8(digits).ok()?.parse().ok()?,
            None => 0,
        };
        (number < MOST && *path == numbered(&first, number)).then_some(number)
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers: BTreeSet<u32> = entries.filter_map(|entry| number(&entry.path())).collect();
    numbers.into_iter().map(|number| numbered(&first, number)).collect()
}

/// The name of file `number` of those that are kept in one place.
fn numbered(first: &Path, number: u32) -> PathBuf {
    let mut place = first.as_os_str().to_owned();
    if number > 0 {
        place.push(format!(".{number}"));
    }
    PathBuf::from(place)
}

/// [`put`], but nobody waits for longer than `patience`: the disk may give no answer. What is put
/// there later all the same is no more than there is elsewhere.
fn put_within(
    patience: Duration,
    folder: BorrowedFd<'_>,
    path: &Path,
    bytes: &Arc<Vec<u8>>,
) -> io::Result<PathBuf> {
    let folder = belay_sys::dup_cloexec(folder)?;
    let (place, bytes) = (path.to_owned(), Arc::clone(bytes));
    let (tell, done) = channel();
    crate::threads::beside("op-log", move || {
        let _ = tell.send(put(folder.as_fd(), &place, &bytes));
    });
    done.recv_timeout(patience).map_err(|_| io::ErrorKind::TimedOut)?
}

/// Writes a new file into `folder`, that is whole and durable, or not there; for its owner alone.
/// It has the name that `path` ends in; if there is one of that name, a number is added.
fn put(folder: BorrowedFd<'_>, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    // What is held may be no more than a place.
    let here = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(folder, ".", here, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut name = path.file_name().ok_or(io::ErrorKind::NotFound)?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    // One of that name is of a process that was this one's predecessor, and came to no end.
    let _ = rustix::fs::unlinkat(&folder, &name, rustix::fs::AtFlags::empty());
    let mut file =
        File::from(rustix::fs::openat(&folder, &name, flags, Mode::from_raw_mode(0o600))?);
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let placed = written.and_then(|()| {
        for number in 0..MOST {
            let place = numbered(path, number);
            let to = place.file_name().ok_or(io::ErrorKind::NotFound)?;
            match rustix::fs::renameat_with(&folder, &name, &folder, to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(rustix::fs::fsync(&folder).map(|()| place)?),
                Err(rustix::io::Errno::EXIST) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    });
    if placed.is_err() {
        let _ = rustix::fs::unlinkat(&folder, &name, rustix::fs::AtFlags::empty());
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn nothing_is_written_over() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image.belay-oplog");
        let folder = File::open(dir.path()).expect("open");
        let put = |path: &Path, bytes| super::put(folder.as_fd(), path, bytes);
        let first = put(&path, b"one").expect("put");
        let second = put(&path, b"two").expect("put");
        assert_eq!((first.clone(), second.clone()), (path, dir.path().join("image.belay-oplog.1")));
        assert_eq!(std::fs::read(&first).expect("read"), b"one");
        assert_eq!(std::fs::read(&second).expect("read"), b"two");
        assert_eq!(std::fs::metadata(&first).expect("stat").mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 2);
        let none = File::open(&first).expect("open");
        assert!(super::put(none.as_fd(), &first, b"x").is_err(), "no folder is held");
    }

    #[test]
    fn an_op_log_goes_to_the_folder_that_is_held() {
        let dir = tempfile::tempdir().expect("tempdir");
        let (here, there, moved) =
            (dir.path().join("here"), dir.path().join("there"), dir.path().join("moved"));
        std::fs::create_dir(&here).expect("mkdir");
        std::fs::create_dir(&there).expect("mkdir");
        let folder = File::open(&here).expect("open");
        // Whoever owns the folder above puts another in its place.
        std::fs::rename(&here, &moved).expect("rename");
        std::os::unix::fs::symlink(&there, &here).expect("link");
        put(folder.as_fd(), &here.join("image.belay-oplog"), b"one").expect("put");
        assert_eq!(std::fs::read(moved.join("image.belay-oplog")).expect("read"), b"one");
        assert_eq!(std::fs::read_dir(&there).expect("list").count(), 0);
    }
}
