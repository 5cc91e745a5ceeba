//! Small memory files that processes hand to each other.

use crate::error::{Error, Result};
use crate::outside;
use belay_sys::sealable_memory_file;
use object::{Object, ObjectSection};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(test)]
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::fs::{Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, openat};
use rustix::io::{Errno, pread, pwrite};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use std::ffi::CString;
use std::path::Path;

const TOO_LONG: &str =
    "memory files count as files: raise the limit of file size (ulimit -f unlimited)";

/// Makes an empty memory file, for tests.
///
/// # Errors
/// Those of `memfd_create(2)`.
#[cfg(test)]
pub fn create(name: &str) -> Result<OwnedFd> {
    memfd_create(name, MemfdFlags::CLOEXEC)
        .map_err(|error| Error::system("create", format!("memory file {name}"), error, ""))
}

/// Makes a memory file of `length` bytes, all zero, that nobody can make shorter or longer: who has
/// it in memory would die (SIGBUS) of a look behind its end.
///
/// # Errors
/// Those of `memfd_create(2)` and ftruncate(2).
pub fn create_sized(name: &str, length: u64) -> Result<OwnedFd> {
    let wrap = |error| Error::system("create", format!("memory file {name}"), error, TOO_LONG);
    let file = create_sized_unsealed(name, length)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(wrap)?;
    Ok(file)
}

fn create_sized_unsealed(name: &str, length: u64) -> Result<OwnedFd> {
    let wrap = |error| Error::system("create", format!("memory file {name}"), error, TOO_LONG);
    let file = sealable_memory_file(name).map_err(wrap)?;
    ftruncate(&file, length).map_err(wrap)?;
    Ok(file)
}

/// Makes an empty memory file that can have large pages, of 2 MiB, where a mapping asks for them:
/// 40 MiB of small pages take the kernel a hundred times as long to map, and, when a daemon has
/// died, to unmap, before anybody hears of its death. Most systems give a memory file large pages
/// only if they were told to (`shmem_enabled`); a tmpfs that nobody else sees may have them always,
/// but it takes root to make one. `None` if it cannot be had.
///
/// It takes `most` bytes of memory at most: who writes where that would be more gets a SIGBUS.
///
/// Such a file cannot be sealed: who maps it and is not to die of what others do to its length must
/// guard its mapping ([`belay_sys::Mapping::guard`]).
pub fn create_large(most: u64) -> Option<OwnedFd> {
    let kind = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_set_string(kind.as_fd(), c"huge", c"advise").ok()?;
    let size = CString::new(most.to_string()).ok()?;
    fsconfig_set_string(kind.as_fd(), c"size", size.as_c_str()).ok()?;
    fsconfig_create(kind.as_fd()).ok()?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = fsmount(kind.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).ok()?;
    // It has no name and lives as long as somebody has it open; so does the tmpfs, which is mounted
    // nowhere.
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    openat(&mount, c".", flags, Mode::from_raw_mode(0o600)).ok()
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

/// Makes a memory file that holds `value` as JSON, for ever.
///
/// # Errors
/// Those of `memfd_create(2)` and pwrite(2).
pub fn from_json(name: &str, value: &impl serde::Serialize) -> Result<OwnedFd> {
    let wrap = |error| Error::system("write", format!("memory file {name}"), error, "");
    let file = sealable_memory_file(name).map_err(wrap)?;
    let bytes = serde_json::to_vec(value)
        .map_err(|error| Error::refused(name, error.to_string(), "report this as a bug"))?;
    write_at(file.as_fd(), &bytes, 0).map_err(wrap)?;
    fcntl_add_seals(&file, for_ever()).map_err(wrap)?;
    Ok(file)
}

/// The seals of a file that stays as it is, which nobody has mapped yet. `F_SEAL_WRITE` would be
/// the same then, but waits for whoever looks at the pages at the time, the kernel's own compaction
/// among them, and may fail with EBUSY.
fn for_ever() -> SealFlags {
    SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// The largest library that is copied.
const LIBRARY: u64 = 256 << 20;

/// Makes a memory file with what the library `path` is now, for ever: whatever becomes of the file,
/// this can be loaded. What is there only for debuggers is left out, as memory files are memory; it
/// reads as zeros.
///
/// # Errors
/// Those of reading it, and of `memfd_create(2)`; if it is no regular file, or too large.
pub fn library(name: &str, path: &Path) -> Result<OwnedFd> {
    let wrap = |error| {
        Error::system("copy", path.display().to_string(), error, "install belay again, as a whole")
    };
    let bytes = outside::read(path, outside::From::Anybody, LIBRARY).map_err(wrap)?;
    let file = create_sized_unsealed(name, bytes.len() as u64)?;
    let mut at = 0;
    for (from, to) in debugging(&bytes).into_iter().chain([(bytes.len(), bytes.len())]) {
        let part = bytes.get(at..from).unwrap_or_default();
        write_at(file.as_fd(), part, at as u64).map_err(|error| wrap(error.into()))?;
        at = at.max(to);
    }
    fcntl_add_seals(&file, for_ever()).map_err(|error| wrap(error.into()))?;
    Ok(file)
}

/// Where in a program file the sections are that no loader looks at, in order; none of what is not
/// understood.
fn debugging(bytes: &[u8]) -> Vec<(usize, usize)> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let is_one = |name: &str| name.starts_with(".debug_");
    let sections = file.sections().filter(|section| section.name().is_ok_and(is_one));
    let mut found: Vec<(usize, usize)> = sections
        .filter_map(|section| section.file_range())
        .filter_map(|(at, length)| {
            let (from, length) = (usize::try_from(at).ok()?, usize::try_from(length).ok()?);
            let to = from.checked_add(length).filter(|to| *to <= bytes.len())?;
            Some((from, to))
        })
        .collect();
    found.sort_unstable();
    found
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

#[cfg(test)]
mod tests {
    use super::*;
    use belay_sys::Mapping;
    use rustix::fs::{fstat, ftruncate};

    const LARGE: usize = 2 << 20;

    #[test]
    fn the_length_of_a_memory_file_and_what_a_configuration_says_are_fixed() {
        let file = create_sized("belay-test", 8192).expect("memfd");
        let map = Mapping::new(file.as_fd(), 8192).expect("map");
        map.words()[1000].store(7, std::sync::atomic::Ordering::Relaxed);
        for length in [0, 4096, 8191, 8193, 1 << 30] {
            assert_eq!(ftruncate(&file, length), Err(Errno::PERM));
        }
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
        map.discard(4096, 4096).expect("memory can be given back");
        let file = from_json("belay-test", &vec![1, 2]).expect("memfd");
        assert_eq!(pwrite(&file, b"x", 0), Err(Errno::PERM));
        assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(to_value::<Vec<i32>>("belay-test", file.as_fd()).expect("read"), [1, 2]);
    }

    /// Whoever looks at a page holds it, as the kernel does when it moves pages: it is sealed
    /// nevertheless.
    #[test]
    fn what_is_sealed_for_ever_waits_for_nobody() {
        let file = create_sized_unsealed("belay-test", 0).unwrap();
        write_at(file.as_fd(), b"x", 0).unwrap();
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let flags = rustix::pipe::SpliceFlags::empty();
        assert_eq!(rustix::pipe::splice(&file, Some(&mut 0), &writer, None, 1, flags), Ok(1));
        assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(Errno::BUSY));
        assert_eq!(fcntl_add_seals(&file, for_ever()), Ok(()));
        assert_eq!(pwrite(&file, b"y", 0), Err(Errno::PERM));
        assert!(Mapping::new(file.as_fd(), 4096).is_err(), "nor is it written by a mapping");
        assert_eq!(read_at(file.as_fd(), 9, 0).unwrap(), b"x");
    }

    /// Blocks of 512 bytes that a file of 8 MiB takes after one word in the middle of it was
    /// written.
    fn touched(file: &OwnedFd, large: bool) -> u64 {
        ftruncate(file, 4 * LARGE as u64).unwrap();
        let map = Mapping::new(file.as_fd(), 4 * LARGE).unwrap();
        if large {
            map.prefer_large(LARGE, 2 * LARGE);
        }
        map.words()[LARGE / 4].store(7, std::sync::atomic::Ordering::Relaxed);
        let again = Mapping::new(file.as_fd(), 4 * LARGE).unwrap();
        assert_eq!(again.words()[LARGE / 4].load(std::sync::atomic::Ordering::Relaxed), 7);
        fstat(file).unwrap().st_blocks as u64
    }

    #[test]
    fn large_pages_are_had_where_they_are_asked_for() {
        let page = rustix::param::page_size() as u64 / 512;
        let shmem = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        let shmem = std::fs::read_to_string(shmem).unwrap_or("[deny]".to_owned());
        let allowed = !shmem.contains("[deny]");
        if shmem.contains("[never]") {
            let file = create("belay-test").unwrap();
            assert_eq!(touched(&file, true), page, "then the tmpfs is of no use");
        }
        let table = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = table();
        let Some(file) = create_large(16 * LARGE as u64) else {
            let kind = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC);
            assert_eq!(kind.err(), Some(Errno::PERM), "who may mount can have a tmpfs");
            return;
        };
        if !shmem.contains("[force]") {
            assert_eq!(touched(&file, false), page, "only where they are asked for");
        }
        let file = create_large(16 * LARGE as u64).unwrap();
        assert_eq!(touched(&file, true), if allowed { LARGE as u64 / 512 } else { page });
        let huge = |table: String| table.matches("huge=advise").count();
        assert_eq!(huge(table()), huge(before), "it is mounted nowhere");
    }
}
