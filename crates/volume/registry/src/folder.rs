//! Which folders and files are believed: those of this user or of root, which nobody else may write
//! to. A definition says which device is written to, so whoever could write one could have root
//! destroy any.

use crate::error::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest definition in bytes.
const MOST: u64 = 64 << 10;

fn system(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
    let path = path.to_owned();
    move |why| Error::System { what, path, why: why.into() }
}

/// Opens a folder of definitions; `None` if there is none.
///
/// # Errors
/// [`Error::NotBelieved`]; those of the system.
pub fn open(path: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => {
            believe(path, &fstat(&fd).map_err(system("look at", path))?)?;
            Ok(Some(fd))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(why) => Err(system("open", path)(why)),
    }
}

/// Makes a folder of definitions, which is its owner's alone, unless it is there.
///
/// # Errors
/// As for [`open`].
pub fn make(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let failed = |why| Error::System { what: "create", path: path.to_owned(), why };
    if open(path)?.is_some() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above).map_err(failed)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(why)),
        _ => {}
    }
    open(path)?.map(|_| ()).ok_or_else(|| failed(std::io::ErrorKind::NotADirectory.into()))
}

/// Reads a definition in a folder; `None` if there is none. `path`: what it is called in messages.
///
/// # Errors
/// [`Error::NotBelieved`] and [`Error::Wrong`]; those of the system.
pub fn read(folder: impl AsFd, name: &str, path: &Path) -> Result<Option<String>> {
    // Without the last of these, a FIFO would wait for somebody at its other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = match openat(folder, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(why) => return Err(system("open", path)(why)),
    };
    let stat = fstat(&fd).map_err(system("look at", path))?;
    let wrong = |why: &str| Error::Wrong { path: path.to_owned(), why: why.to_owned() };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(wrong("it is no regular file"));
    }
    believe(path, &stat)?;
    let mut bytes = Vec::new();
    let read = File::from(fd).take(MOST + 1).read_to_end(&mut bytes);
    read.map_err(|why| Error::System { what: "read", path: path.to_owned(), why })?;
    if bytes.len() as u64 > MOST {
        return Err(wrong("it is too long"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is not UTF-8"))
}

fn believe(path: &Path, stat: &Stat) -> Result<()> {
    let not = |why: String| Err(Error::NotBelieved { path: PathBuf::from(path), why });
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != 0 && stat.st_uid != own {
        return not(format!("it belongs to user {}", stat.st_uid));
    }
    if stat.st_mode & 0o022 != 0 {
        return not("others than its owner may write to it".to_owned());
    }
    Ok(())
}
