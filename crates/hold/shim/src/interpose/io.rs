//! read, write, splice and ioctl.

use super::calls::copies::splice_here;
use super::calls::files::{read_here, write_here};
use super::calls::image_io::{is_read_by, passes_by, read_image_here};
use super::second::clones_another;
use crate::argument::{Input, Output, Outputs};
use crate::descriptors::{is_device, is_image};
use crate::effects::journal;
use crate::pipes;
use crate::real;
use crate::shim::{policy, shim};
use libc::{c_int, c_uint, c_ulong, c_void, iovec, loff_t, size_t, ssize_t};
use std::mem::ManuallyDrop;

/// FUSE_DEV_IOC_CLONE: `_IOR(229, 0, uint32_t)`.
const FUSE_DEV_IOC_CLONE: c_ulong = 0x8004_e500;
/// What changes a disk or a file: BLKDISCARD, BLKSECDISCARD and BLKZEROOUT (`_IO(0x12, 119)`, 125
/// and 127); FICLONE, FICLONERANGE and FIDEDUPERANGE (linux/fs.h).
const CHANGES: [c_ulong; 6] = [0x1277, 0x127d, 0x127f, FICLONE, FICLONERANGE, 0xc018_9436];
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;
/// The most parts that a vectored call may have: UIO_MAXIOV of linux/uio.h.
const MOST_PARTS: c_int = 1024;
/// Kinds of ioctl(2) (`_IOC_TYPE`) that change nothing anywhere: of terminals and of all
/// descriptors ('T'), of random numbers.
const ASKS: [u8; 2] = [b'T', b'R'];

/// A read of the device by any call but read(2): it knows no offsets. `None` if `fd` is not the
/// device.
pub(super) fn read_device(fd: c_int, parts: &mut Outputs<'_>) -> Option<isize> {
    let shim = shim().filter(|_| is_device(fd))?;
    // The thread may be cancelled in its read: nothing that has a destructor lives across that. The
    // buffer is lost then.
    let mut message = ManuallyDrop::new(vec![0u8; parts.total()]);
    let n = shim.read(fd, Output::from(message.as_mut_slice()));
    let message = ManuallyDrop::into_inner(message);
    let mut rest = message.get(..usize::try_from(n).unwrap_or(0)).unwrap_or(&[]);
    for index in 0..parts.count() {
        let put = parts.part(index).map_or(0, |mut part| part.put(rest));
        rest = rest.get(put..).unwrap_or(&[]);
    }
    Some(n)
}

/// A write to the device by any call but write(2) and writev(2).
pub(super) fn write_device(fd: c_int, parts: &[Input<'_>]) -> Option<isize> {
    let shim = shim().filter(|_| is_device(fd))?;
    Some(shim.write_vectored(fd, parts))
}

/// read(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: read(2) fills at most `len` bytes at `buf`, which are its caller's alone until it
    // returns.
    let into = unsafe { Output::new(buf, len) };
    if is_device(fd)
        && let Some(shim) = shim()
    {
        return shim.read(fd, into);
    }
    if pipes::is_ahead(fd) {
        return pipes::read_ahead(into);
    }
    // SAFETY: the caller's arguments, unchanged.
    read_here(fd, into, || unsafe { real::read(fd, buf, len) })
}

/// read(2) as _FORTIFY_SOURCE calls it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    if len > room {
        std::process::abort(); // as glibc does
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { read(fd, buf, len) }
}

/// readv(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: readv(2) reads `count` iovecs at `iov`, and fills what they name, which is its
    // caller's alone until it returns.
    let mut parts = unsafe { Outputs::new(iov, usize::try_from(count).unwrap_or(0)) };
    if let Some(n) = read_device(fd, &mut parts) {
        return n;
    }
    if is_image(fd) && count > 0 {
        return read_image_here(fd, &mut parts);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::readv(fd, iov, count) }
}

/// write(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: write(2) reads `len` bytes at `buf`, which its caller leaves as they are until it
    // returns.
    let part = [unsafe { Input::new(buf, len) }];
    if is_device(fd)
        && let Some(shim) = shim()
    {
        return shim.write_vectored(fd, &part);
    }
    // SAFETY: the caller's arguments, unchanged.
    write_here(fd, &part, || unsafe { real::write(fd, buf, len) })
}

/// writev(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: writev(2) reads `count` iovecs at `iov`, and what they name, all of which its caller
    // leaves as it is until it returns.
    let parts = unsafe { Input::list(iov, usize::try_from(count).unwrap_or(0)) };
    // What the kernel refuses is its own to refuse: too many parts, or fewer than none.
    if is_device(fd)
        && (0..=MOST_PARTS).contains(&count)
        && let Some(shim) = shim()
    {
        return shim.write_vectored(fd, parts);
    }
    // SAFETY: the caller's arguments, unchanged.
    write_here(fd, parts, || unsafe { real::writev(fd, iov, count) })
}

/// splice(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_off: *mut loff_t,
    to: c_int,
    to_off: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    let pass = || unsafe { real::splice(from, from_off, to, to_off, len, flags) };
    let Some(shim) = shim() else { return pass() };
    if is_device(from) {
        return shim.splice_in(from, to, len, flags);
    }
    if is_device(to) {
        // A reply is on record by then: no thread is cancelled here.
        // SAFETY: the caller's arguments, unchanged; the kernel checks them.
        let pass = || unsafe {
            belay_sys::raw::syscall(libc::SYS_splice, from, from_off, to, to_off, len, flags)
                as isize
        };
        return shim.splice_out(from, to, len, pass);
    }
    if pipes::is_ahead(from) {
        // The daemon skips the head of its request: no libfuse does.
        real::set_errno(libc::EINVAL);
        return -1;
    }
    splice_here(from, to, len, pass)
}

/// vmsplice(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn vmsplice(
    fd: c_int,
    iov: *const iovec,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if shim().is_some() {
        // SAFETY: vmsplice(2) takes `count` iovecs at `iov`, of which the first is looked at if
        // there is one; its caller leaves them, and what they name, alone until it returns.
        if let [first, ..] = unsafe { Input::list(iov, count.min(1)) } {
            pipes::note_reply_head(first);
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::vmsplice(fd, iov, count, flags) }
}

/// ioctl(2). Cloning the device is granted without doing it: all descriptors share one
/// description, whose requests the keeper keeps alive.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    if request == FUSE_DEV_IOC_CLONE && is_device(fd) {
        // SAFETY: this ioctl(2) reads a number at its argument.
        if !unsafe { clones_another(fd, arg) } {
            return 0;
        }
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::ioctl(fd, request, arg) };
    }
    if request == libc::FIONBIO as c_ulong && is_device(fd) {
        // SAFETY: the caller's arguments, unchanged.
        let done = unsafe { real::ioctl(fd, request, arg) };
        if let Some(shim) = shim().filter(|_| done >= 0) {
            shim.reads_wait(); // looks, and notes it
        }
        return done;
    }
    if !ASKS.contains(&((request >> 8) as u8)) && !is_device(fd) {
        journal::told(fd);
    }
    // A disk can be told to discard; most of what it is asked changes nothing.
    let changes = CHANGES.contains(&request) || policy().is_transaction();
    if changes && passes_by(fd) {
        return -1;
    }
    let from = match request {
        FICLONE => arg as c_int,
        // SAFETY: struct file_clone_range, whose first member is the source's descriptor; the
        // caller's, readable.
        FICLONERANGE if !arg.is_null() => (unsafe { arg.cast::<i64>().read_unaligned() }) as c_int,
        _ => -1,
    };
    if is_read_by(from) {
        real::set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::ioctl(fd, request, arg) }
}
