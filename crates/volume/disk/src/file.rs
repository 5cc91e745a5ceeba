//! An image file or a block device.
//!
//! It is locked while it is open: a block device by O_EXCL, which mounted ones refuse, an image
//! file by flock(2). So two processes of belay's never write to one store.

use crate::{BLOCK, Disk, check_range};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags,
    fallocate, fdatasync, flock, fstat, ftruncate, openat, seek, statx,
};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why something cannot be used as a disk.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot {what} {}: {why}", path.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// It is neither a file nor a block device.
    #[error("{} is neither a file nor a block device", .0.display())]
    Kind(PathBuf),
    /// Somebody else has it.
    #[error("{path} is in use, by a mounted volume or by the system: `fuser -v {path}` says by whom", path = .0.display())]
    InUse(PathBuf),
}

/// Where what is open is by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Where it was opened.
    There,
    /// It has this name now.
    Moved(PathBuf),
    /// Nowhere: it has no name, and is gone as soon as nobody has it open.
    Removed,
}

/// An image file or a block device that is open, and locked.
#[derive(Debug)]
pub struct FileDisk {
    fd: OwnedFd,
    path: PathBuf,
    blocks: u64,
    /// Whether it is an image file, which a write behind its end makes longer.
    is_image: bool,
    /// By which name the kernel knew an image when it was opened; `None` if that is not asked.
    name: Option<PathBuf>,
}

impl FileDisk {
    /// Opens what is at `path`. What is behind the last whole block is not used.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_for(path, OFlags::RDWR)
    }

    /// The same for reading alone: each write is an error. It is locked all the same, so that
    /// nobody changes it meanwhile.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        Self::open_for(path, OFlags::RDONLY)
    }

    fn open_for(path: &Path, access: OFlags) -> Result<Self, OpenError> {
        // Without this, a FIFO would wait for somebody at its other end.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = |flags| openat(CWD, path, flags, Mode::empty());
        let path = || path.to_owned();
        let system =
            |what| move |why: Errno| OpenError::System { what, path: path(), why: why.into() };
        let mut fd = open(flags).map_err(system("open"))?;
        let kind = FileType::from_raw_mode(fstat(&fd).map_err(system("look at"))?.st_mode);
        match kind {
            FileType::RegularFile => flock(&fd, FlockOperation::NonBlockingLockExclusive),
            FileType::BlockDevice => open(flags | OFlags::EXCL).map(|held| fd = held),
            _ => return Err(OpenError::Kind(path())),
        }
        .map_err(|why| match why {
            Errno::WOULDBLOCK | Errno::BUSY => OpenError::InUse(path()),
            why => system("lock")(why),
        })?;
        let bytes = seek(&fd, SeekFrom::End(0)).map_err(system("measure"))?;
        let is_image = kind == FileType::RegularFile;
        let name = name_of(&fd).ok().filter(|_| is_image);
        Ok(Self { fd, path: path(), blocks: bytes / BLOCK as u64, is_image, name })
    }

    /// Makes an image file of so many bytes at `path`, readable by its owner alone. It takes room
    /// on its file system as it is written to.
    ///
    /// # Errors
    /// See [`OpenError`]; if there is something at `path` already.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, OpenError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let system = |what| {
            move |why: Errno| OpenError::System { what, path: path.to_owned(), why: why.into() }
        };
        let fd = openat(CWD, path, flags, mode).map_err(system("create"))?;
        flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(system("lock"))?;
        if let Err(why) = ftruncate(&fd, bytes) {
            // Nobody else can have found it in use.
            let _ = std::fs::remove_file(path);
            return Err(system("make room for")(why));
        }
        let (path, blocks, name) = (path.to_owned(), bytes / BLOCK as u64, name_of(&fd).ok());
        Ok(Self { fd, path, blocks, is_image: true, name })
    }

    /// Takes the room of all blocks of an image on its file system, so that no write can fail for
    /// want of it.
    ///
    /// # Errors
    /// [`OpenError::System`]: there is less room, or the file system cannot do that.
    pub fn preallocate(&self) -> Result<(), OpenError> {
        let bytes = self.blocks * BLOCK as u64;
        retry_on_intr(|| fallocate(&self.fd, FallocateFlags::KEEP_SIZE, 0, bytes)).map_err(|why| {
            let what = "preallocate";
            OpenError::System { what, path: self.path.clone(), why: why.into() }
        })
    }

    /// Whether an image has nothing but zeros in it, behind its last whole block as well. Its holes
    /// are not read.
    ///
    /// # Errors
    /// Those of lseek(2) and pread(2).
    pub fn is_blank(&self) -> io::Result<bool> {
        let mut bytes = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let data = match seek(&self.fd, SeekFrom::Data(at)) {
                Ok(data) => data,
                // There is none behind that.
                Err(Errno::NXIO) => return Ok(true),
                Err(why) => return Err(why.into()),
            };
            let end = seek(&self.fd, SeekFrom::Hole(data))?;
            at = data;
            while at < end {
                let wanted = usize::try_from(end - at).unwrap_or(bytes.len()).min(bytes.len());
                let part = bytes.get_mut(..wanted).unwrap_or_default();
                let read = retry_on_intr(|| pread(&self.fd, &mut *part, at))?;
                if part.get(..read).is_some_and(|part| part.iter().any(|byte| *byte != 0)) {
                    return Ok(false);
                }
                if read == 0 {
                    // It has become shorter.
                    return Ok(true);
                }
                at += read as u64;
            }
        }
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is now, by what the kernel remembers of its name: nobody goes the way there, which
    /// may lead through what others serve, or through the volume itself. Of a block device it is
    /// not asked.
    ///
    /// # Errors
    /// Those of readlink(2) and statx(2).
    pub fn whereabouts(&self) -> io::Result<Whereabouts> {
        let Some(before) = &self.name else { return Ok(Whereabouts::There) };
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let links = statx(&self.fd, c"", flags, StatxFlags::NLINK)?.stx_nlink;
        let now = name_of(&self.fd)?;
        Ok(match links {
            0 => Whereabouts::Removed,
            _ if now == *before => Whereabouts::There,
            _ => Whereabouts::Moved(now),
        })
    }
}

/// By which name a file was opened, or by which it is there since it was renamed.
fn name_of(fd: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

impl Disk for FileDisk {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, first: u64, mut out: &mut [u8]) -> io::Result<()> {
        check_range(self.blocks, first, out.len())?;
        let mut at = first * BLOCK as u64;
        while !out.is_empty() {
            match retry_on_intr(|| pread(&self.fd, &mut *out, at))? {
                0 => return Err(shorter()),
                read => {
                    out = out.get_mut(read..).unwrap_or_default();
                    at += read as u64;
                }
            }
        }
        Ok(())
    }

    fn write(&self, first: u64, mut data: &[u8]) -> io::Result<()> {
        check_range(self.blocks, first, data.len())?;
        let mut at = first * BLOCK as u64;
        // What was cut off is lost. A write behind its end would hide that.
        if self.is_image && (fstat(&self.fd)?.st_size as u64) < at + data.len() as u64 {
            return Err(shorter());
        }
        while !data.is_empty() {
            match retry_on_intr(|| pwrite(&self.fd, data, at))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    data = data.get(written..).unwrap_or_default();
                    at += written as u64;
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| fdatasync(&self.fd))?)
    }
}

fn shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it has become shorter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_end_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let disk = FileDisk::create(&path, 5 * BLOCK as u64 + 17).unwrap();
        assert_eq!(disk.blocks(), 5);
        disk.write(3, &[7; 2 * BLOCK]).unwrap();
        disk.flush().unwrap();
        let mut out = vec![1; 3 * BLOCK];
        disk.read(2, &mut out).unwrap();
        assert!(out[..BLOCK].iter().all(|byte| *byte == 0));
        assert!(out[BLOCK..].iter().all(|byte| *byte == 7));
        for (first, bytes) in [(4, 2 * BLOCK), (5, BLOCK), (0, BLOCK - 1), (u64::MAX, BLOCK)] {
            assert!(disk.write(first, &vec![0; bytes]).is_err());
            assert!(disk.read(first, &mut vec![0; bytes]).is_err());
        }
    }

    #[test]
    fn where_it_is_by_now_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("image"), dir.path().join("aside"));
        let disk = FileDisk::create(&path, 5 * BLOCK as u64).unwrap();
        let is = |whereabouts| assert_eq!(disk.whereabouts().unwrap(), whereabouts);
        is(Whereabouts::There);
        let real = dir.path().canonicalize().unwrap();
        std::fs::rename(&path, &aside).unwrap();
        is(Whereabouts::Moved(real.join("aside")));
        std::fs::write(&path, "another").unwrap();
        is(Whereabouts::Moved(real.join("aside")));
        std::fs::rename(&aside, &path).unwrap();
        is(Whereabouts::There);
        std::fs::hard_link(&path, &aside).unwrap();
        std::fs::remove_file(&aside).unwrap();
        is(Whereabouts::There);
        std::fs::remove_file(&path).unwrap();
        is(Whereabouts::Removed);
        std::fs::create_dir(&path).unwrap();
        is(Whereabouts::Removed);
    }

    #[test]
    fn one_that_is_preallocated_has_its_room() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let disk = FileDisk::create(&path, 1 << 20).unwrap();
        let taken = || path.metadata().unwrap().blocks() * 512;
        assert!(taken() < 1 << 20);
        disk.preallocate().unwrap();
        assert!(taken() >= 1 << 20);
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn one_that_is_open_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let disk = FileDisk::create(&path, 1 << 20).unwrap();
        assert!(matches!(FileDisk::open(&path), Err(OpenError::InUse(_))));
        drop(disk);
        assert_eq!(FileDisk::open(&path).unwrap().blocks(), 256);
        let reader = FileDisk::open_read_only(&path).unwrap();
        assert!(matches!(FileDisk::open(&path), Err(OpenError::InUse(_))));
        assert!(reader.read(0, &mut [0; BLOCK]).is_ok() && reader.write(0, &[0; BLOCK]).is_err());
        drop(reader);
        assert!(FileDisk::create(&path, 1 << 20).is_err(), "what is there stays");
    }

    #[test]
    fn one_that_becomes_shorter_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let disk = FileDisk::create(&path, 1 << 20).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(BLOCK as u64).unwrap();
        assert!(disk.read(1, &mut [0; BLOCK]).is_err());
        // A write does not make it longer.
        assert!(disk.write(7, &[1; BLOCK]).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), BLOCK as u64);
        disk.write(0, &[1; BLOCK]).unwrap();
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(FileDisk::open(Path::new("/dev/null")), Err(OpenError::Kind(_))));
        assert!(FileDisk::open(dir.path()).is_err());
        assert!(FileDisk::open(&dir.path().join("none")).is_err());
        // Disks are named by links, as in /dev/disk/by-id.
        FileDisk::create(&dir.path().join("image"), 1 << 20).unwrap();
        std::os::unix::fs::symlink("image", dir.path().join("link")).unwrap();
        assert!(FileDisk::open(&dir.path().join("link")).is_ok());
    }
}
