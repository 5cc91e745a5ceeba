//! Reads and writes of the image, turned to the transaction, and what cannot be turned there.

use super::made::syscall;
use crate::argument::{Input, Outputs, Text};
use crate::descriptors::is_image;
use crate::effects::journal::note_image;
use crate::positions;
use crate::real;
use crate::shim::{Shim, policy, shim};
use libc::{c_int, c_void, off_t, size_t};

/// Reads the image at the position of its descriptor.
pub(in crate::interpose) fn read_image_here(fd: c_int, parts: &mut Outputs<'_>) -> isize {
    here(fd, |at| read_image_at(fd, parts, at))
}

/// Writes the image at the position of its descriptor.
pub(in crate::interpose) fn write_image_here(fd: c_int, parts: &[Input<'_>]) -> isize {
    here(fd, |at| write_image_at(fd, parts, at))
}

/// Has `act` read or write at the position of `fd`, which moves by as much as that gives.
fn here(fd: c_int, act: impl FnOnce(i64) -> isize) -> isize {
    let kept = positions::kept(fd);
    let at = kept.unwrap_or_else(|| syscall!(SYS_lseek, fd, 0, libc::SEEK_CUR) as i64);
    if at < 0 {
        return -1;
    }
    let done = act(at);
    if done > 0 {
        go(fd, kept, at + done as i64);
    }
    done
}

/// lseek(2) of the image: it ends where the daemon has made it end.
fn seek(fd: c_int, offset: i64, whence: c_int) -> i64 {
    let end = if whence == libc::SEEK_END { image_end(fd) } else { None };
    let (offset, whence) = match end.map(|end| end.checked_add(offset)) {
        Some(Some(at)) => (at, libc::SEEK_SET),
        _ => (offset, whence),
    };
    let Some(at) = positions::kept(fd) else {
        return syscall!(SYS_lseek, fd, offset, whence) as i64;
    };
    let to = match whence {
        libc::SEEK_SET => offset,
        libc::SEEK_CUR => at.wrapping_add(offset),
        // The end of a disk, holes: the kernel knows.
        _ => syscall!(SYS_lseek, fd, offset, whence) as i64,
    };
    if to < 0 {
        if matches!(whence, libc::SEEK_SET | libc::SEEK_CUR) {
            real::set_errno(libc::EINVAL);
        }
        return -1;
    }
    if (whence, offset) == (libc::SEEK_CUR, 0) { to } else { go(fd, Some(at), to) }
}

/// The position of `fd` is `to` from now on; `kept`: what it was if it was kept here.
fn go(fd: c_int, kept: Option<i64>, to: i64) -> i64 {
    if kept.is_some_and(|from| positions::change(fd, from, to)) {
        return to;
    }
    // Another thread moves it as well, or has handed it back: the later of two comes last.
    positions::hand_back(fd);
    syscall!(SYS_lseek, fd, to, libc::SEEK_SET) as i64
}

/// Reads the image at an offset.
pub(super) fn read_image_at(fd: c_int, parts: &mut Outputs<'_>, offset: i64) -> isize {
    let Some(shim) = shim() else { return real::fail(libc::EBADF) };
    in_turn(parts.count(), offset, |index, at| {
        let Some(mut part) = parts.part(index) else { return (0, 0) };
        let len = part.len();
        let n = match (shim.epoch(), shim.transaction()) {
            (Some(epoch), _) => epoch.read(fd, part.bytes(), at),
            (None, Some(transaction)) => {
                let n = syscall!(SYS_pread64, fd, part.pointer(), len, at);
                transaction.read(n, part.bytes(), at)
            }
            (None, None) => real::fail(libc::EBADF), // without such a policy nothing is an image
        };
        (n, len)
    })
}

/// Writes the image at an offset.
pub(super) fn write_image_at(fd: c_int, parts: &[Input<'_>], offset: i64) -> isize {
    let Some(shim) = shim() else { return real::fail(libc::EBADF) };
    in_turn(parts.len(), offset, |index, at| {
        let Some(part) = parts.get(index) else { return (0, 0) };
        let n = match (shim.epoch(), shim.transaction()) {
            (Some(epoch), _) => epoch.write(fd, part.bytes(), at),
            (None, Some(transaction)) => {
                note_image();
                transaction.write(fd, part.bytes(), at)
            }
            (None, None) => real::fail(libc::EBADF), // as above
        };
        (n, part.len())
    })
}

/// Does one part after the other of a vectored call that begins at `offset`. `one` is given a
/// part's index and where it begins, and gives what came of it and how long it is. What is short,
/// or fails, is the last.
fn in_turn(count: usize, offset: i64, mut one: impl FnMut(usize, i64) -> (isize, usize)) -> isize {
    let mut done = 0_isize;
    for index in 0..count {
        let (n, len) = one(index, offset + done as i64);
        if n < 0 {
            return if done > 0 { done } else { n };
        }
        done += n;
        if (n as usize) < len {
            break;
        }
    }
    done
}

/// The image, if `fd` is that, is about to be changed otherwise than by a write. Gives whether that
/// is refused, with errno set: nothing may pass the overlay by.
pub(in crate::interpose) fn passes_by(fd: c_int) -> bool {
    let (true, Some(shim)) = (is_image(fd), shim()) else { return false };
    if shim.policy.is_epoch() {
        real::set_errno(libc::EOPNOTSUPP);
        return true;
    }
    note_image();
    if let Some(transaction) = shim.transaction() {
        transaction.beyond();
    }
    false
}

/// As [`passes_by`] if the image is about to be read otherwise than by a read; errno is the
/// caller's to set.
pub(in crate::interpose) fn is_read_by(fd: c_int) -> bool {
    let (true, Some(shim)) = (is_image(fd), shim()) else { return false };
    if shim.policy.is_epoch() {
        return true;
    }
    if let Some(transaction) = shim.transaction() {
        transaction.read_beyond();
    }
    false
}

/// Whether a name leads to the image, and what is done by it would pass the overlay by.
pub(super) fn is_named(path: Text<'_>) -> bool {
    let Some(epoch) = shim().and_then(Shim::epoch) else { return false };
    path.string().is_some_and(|path| epoch.leads_to_image(libc::AT_FDCWD, path, true))
}

/// ftruncate(2) of the image, if `fd` is that and the overlay has to know.
pub(super) fn image_length(fd: c_int, length: i64) -> Option<c_int> {
    let epoch = shim()?.epoch().filter(|_| is_image(fd))?;
    Some(epoch.set_length(length))
}

/// How long the daemon is to find its image, if `fd` is that and that may be another length than
/// the disk's.
pub(super) fn image_end(fd: c_int) -> Option<i64> {
    let epoch = shim().filter(|_| is_image(fd))?.epoch()?;
    epoch.length()
}

macro_rules! seeks {
    ($($name:ident;)*) => {$(
        /// lseek(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, offset: off_t, whence: c_int) -> off_t {
            if is_image(fd) {
                return seek(fd, offset, whence);
            }
            syscall!(SYS_lseek, fd, offset, whence) as off_t
        }
    )*};
}

seeks! {
    lseek;
    lseek64;
}

/// Memory that is shared with the image would pass the overlay by, so it is not to be had.
fn refuses_mapping(fd: c_int) -> bool {
    let refused = is_image(fd) && policy().is_epoch();
    if refused {
        eprintln!(
            "belay: the daemon maps its image into memory, which the policy `epoch` cannot follow: it gets ENODEV; \
             start it under another policy (--policy)"
        );
        real::set_errno(libc::ENODEV);
    }
    refused
}

macro_rules! mappings {
    ($($name:ident;)*) => {$(
        /// mmap(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            at: *mut c_void,
            len: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            if refuses_mapping(fd) {
                return libc::MAP_FAILED;
            }
            crate::effects::journal::mapping(protection, flags, fd);
            syscall!(SYS_mmap, at, len, protection, flags, fd, offset) as *mut c_void
        }
    )*};
}

mappings! {
    mmap;
    mmap64;
}

macro_rules! syncs {
    ($($name:ident, $number:ident;)*) => {$(
        /// Makes a file durable. Of an image with a transaction under way: once that is carried
        /// out.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            if is_image(fd) && policy().is_epoch() {
                return 0; // a checkpoint makes it durable; until then nothing is there to be
            }
            if is_image(fd)
                && let Some(done) = shim().and_then(Shim::transaction).and_then(|it| it.sync())
            {
                return done;
            }
            syscall!($number, fd) as c_int
        }
    )*};
}

syncs! {
    fsync, SYS_fsync;
    fdatasync, SYS_fdatasync;
}
