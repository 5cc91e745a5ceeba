//! Small memory files that processes hand to each other.

use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, pwrite};

/// Makes an empty memory file.
///
/// # Errors
/// Those of `memfd_create(2)`.
pub fn create(name: &str) -> Result<OwnedFd> {
    memfd_create(name, MemfdFlags::CLOEXEC)
        .map_err(|error| Error::system("create", format!("memory file {name}"), error, ""))
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// Those of pwrite(2).
pub fn write_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(n) => {
                bytes = bytes.get(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads up to `length` bytes at `offset`; less if the file ends before.
///
/// # Errors
/// Those of pread(2).
pub fn read_at(file: BorrowedFd<'_>, length: usize, offset: u64) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(file, rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Makes a memory file that holds `value` as JSON.
///
/// # Errors
/// Those of `memfd_create(2)` and pwrite(2).
pub fn from_json(name: &str, value: &impl serde::Serialize) -> Result<OwnedFd> {
    let file = create(name)?;
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Error::refused(name, error.to_string(), "report this as a bug"))?;
    write_at(file.as_fd(), &bytes, 0)
        .map_err(|error| Error::system("write", format!("memory file {name}"), error, ""))?;
    Ok(file)
}

/// Reads a memory file made by [`from_json`].
///
/// # Errors
/// Those of pread(2), and what is wrong with the JSON.
pub fn to_value<T: serde::de::DeserializeOwned>(name: &str, file: BorrowedFd<'_>) -> Result<T> {
    let wrap = |error| Error::system("read", format!("memory file {name}"), error, "");
    let size = rustix::fs::fstat(file).map_err(wrap)?.st_size;
    let size = usize::try_from(size).unwrap_or(0).min(8 << 20);
    let bytes = read_at(file, size, 0).map_err(wrap)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::refused(name, error.to_string(), "report this as a bug"))
}
