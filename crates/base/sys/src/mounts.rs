//! What the kernel says of mounts by their numbers, and what is changed of one by a descriptor. No
//! path is gone, so nobody is asked who serves a file system.

use crate::raw::syscall;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

// The same on all machines (asm-generic/unistd.h); Linux 6.8.
const STATMOUNT: libc::c_long = 457;
const LISTMOUNT: libc::c_long = 458;
/// `LSMT_ROOT` of linux/mount.h: all below this process's root.
const ALL: u64 = u64::MAX;
/// `STATMOUNT_MNT_BASIC`.
const BASIC: u64 = 2;
/// Numbers of one call.
const MANY: usize = 256;
/// More mounts than these are not looked at: a mount namespace has at most 100000 unless somebody
/// has changed that.
const MOST: usize = 1 << 20;

/// `struct mnt_id_req`.
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    mount: u64,
    parameter: u64,
}

impl Request {
    fn new(mount: u64, parameter: u64) -> Self {
        Self { size: size_of::<Self>() as u32, spare: 0, mount, parameter }
    }
}

/// Words of 8 bytes that `struct statmount` has.
const WORDS: usize = 64;

/// The number of the mount `id`, a line of this thread's mount table, that no other mount ever
/// gets; `None` if it is not there.
///
/// # Errors
/// Those of listmount(2) and statmount(2): `ENOSYS` before Linux 6.8.
pub fn unique_number(id: u32) -> io::Result<Option<u64>> {
    let mut last = 0;
    for _ in 0..MOST / MANY {
        let mut found = [0_u64; MANY];
        let request = Request::new(ALL, last);
        // SAFETY: a structure of the size that it says, which the kernel reads, and an array of as
        // many words as is said, which it fills; both live during the call.
        let count = unsafe { syscall(LISTMOUNT, &raw const request, found.as_mut_ptr(), MANY, 0) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let found = found.get(..count).unwrap_or_default();
        for unique in found {
            match id_of(*unique) {
                Ok(this) if this == id => return Ok(Some(*unique)),
                // It has gone meanwhile.
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        match found.last() {
            Some(unique) if count == MANY => last = *unique,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// The number that the mount table has of a mount.
fn id_of(unique: u64) -> io::Result<u32> {
    let request = Request::new(unique, BASIC);
    let mut words = [0_u64; WORDS];
    // SAFETY: a structure of the size that it says, which the kernel reads, and memory of the
    // length that is said, which it fills; both live during the call.
    let done = unsafe {
        syscall(STATMOUNT, &raw const request, words.as_mut_ptr(), size_of_val(&words), 0)
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let [mask, old] = [words[1], words[7]];
    if mask & BASIC == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The older number comes first of two that share a word.
    let [a, b, c, d, ..] = old.to_ne_bytes();
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// `struct mount_attr`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    users: u64,
}

/// Changes the mount of which `root` (`O_PATH` will do) is the root: sets its flags `set` and
/// clears `clear`, which are `MOUNT_ATTR_*` of linux/mount.h. The file system is not asked, nor
/// waited for.
///
/// # Errors
/// Those of mount_setattr(2): `EBUSY` if it is to be read-only and somebody has it open for
/// writing, `ENOSYS` before Linux 5.12.
pub fn change_mount(root: BorrowedFd<'_>, set: u64, clear: u64) -> io::Result<()> {
    let change = Attributes { set, clear, propagation: 0, users: 0 };
    let (number, size) = (root.as_raw_fd(), size_of::<Attributes>());
    let (flags, path) = (libc::AT_EMPTY_PATH, c"".as_ptr());
    // SAFETY: an open descriptor, an empty string, and a structure of the size that is said, which
    // the kernel reads; all live during the call.
    let done =
        unsafe { syscall(libc::SYS_mount_setattr, number, path, flags, &raw const change, size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

    #[test]
    fn numbers_of_mounts_are_those_of_statx() {
        let table = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("table");
        let mut root = table.lines().filter(|line| line.split(' ').nth(4) == Some("/"));
        let id =
            root.next_back().and_then(|line| line.split(' ').next()?.parse().ok()).expect("a root");
        let flags = StatxFlags::from_bits_retain(0x4000);
        let stat = statx(CWD, "/", AtFlags::empty(), flags).expect("statx");
        match unique_number(id) {
            Ok(found) => assert_eq!(found, Some(stat.stx_mnt_id)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        assert_eq!(unique_number(u32::MAX).unwrap_or_default(), None);
    }

    #[test]
    fn what_is_no_mount_is_not_changed() {
        let file = tempfile::tempfile().expect("file");
        let fd = rustix::fd::AsFd::as_fd(&file);
        let code = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        let refused = code(change_mount(fd, 8, 0));
        assert!(matches!(refused, Some(libc::EINVAL | libc::EPERM | libc::ENOSYS)), "{refused:?}");
    }
}
