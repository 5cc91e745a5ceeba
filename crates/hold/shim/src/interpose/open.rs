//! open and close: every /dev/fuse is the one device that the keeper holds.

use super::calls::{open_changing, reopen};
use super::second;
use crate::argument::Text;
use crate::effects::journal;
use crate::shim::{Shim, shim};
use crate::standin::{image, instead};
use crate::{descriptors, real, renumbered};
use libc::{c_char, c_int, c_void, mode_t, size_t};
use std::os::fd::AsRawFd;

/// The device instead of a freshly opened /dev/fuse; `None` for other paths.
fn device(path: Text<'_>, flags: c_int) -> Option<c_int> {
    let shim = shim()?;
    let path = path.string()?;
    if path != c"/dev/fuse" && path != c"/dev/fuse/" {
        return None;
    }
    let how = if flags & libc::O_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: duplicates a live descriptor to the lowest free number, as open(2) would choose.
    let fd = unsafe { libc::fcntl(shim.device.as_raw_fd(), how, 0) };
    if fd >= 0 {
        renumbered::remove(fd); // its number may have been another's
        is_device_now(shim, fd, flags);
    }
    Some(fd)
}

/// `fd` has become the device.
fn is_device_now(shim: &Shim, fd: c_int, flags: c_int) {
    descriptors::add(fd);
    if flags & libc::O_NONBLOCK != 0 {
        second::opened_nonblocking(fd);
        // SAFETY: a live descriptor; the description is the one device's.
        unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK) };
        shim.reads_wait(); // looks, and notes it
    }
}

/// /dev/fuse has other names: links, ways around, nodes made elsewhere. What `fd` was opened by
/// tells nothing, so it is asked what it is; until the daemon serves only, and of what could be a
/// device to serve by, as that is a system call.
fn by_another_name(shim: &Shim, fd: c_int, flags: c_int) {
    if flags & libc::O_ACCMODE != libc::O_RDWR || shim.host.is_ready() {
        return;
    }
    let is_fuse = |stat: libc::stat| {
        stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == libc::makedev(10, 229)
    };
    if !descriptors::stat_of(fd).is_some_and(is_fuse) {
        return;
    }
    // SAFETY: two live descriptors, one of which is the daemon's, which has not got it yet.
    if unsafe { real::dup3(shim.device.as_raw_fd(), fd, flags & libc::O_CLOEXEC) } >= 0 {
        is_device_now(shim, fd, flags);
    }
}

/// openat(2) of anything but the device, or of its stand-in if it leads to the mount.
fn elsewhere(dir: c_int, path: Text<'_>, flags: c_int, mode: mode_t) -> c_int {
    let image = path.string().and_then(|name| image(dir, name));
    if let Some(image) = image.as_deref() {
        // It is there, and its link in /proc is to be followed.
        let made = if flags & libc::O_CREAT != 0 { libc::O_CREAT | libc::O_EXCL } else { 0 };
        return other_than_mount(
            libc::AT_FDCWD,
            image.into(),
            flags & !(made | libc::O_NOFOLLOW),
            mode,
        );
    }
    if let Some(name) = path.string()
        && let Some(standin) = instead(dir, name, flags & libc::O_NOFOLLOW == 0)
    {
        // SAFETY: a live string, and numbers.
        return unsafe { real::openat(libc::AT_FDCWD, standin.as_ptr(), flags, mode) };
    }
    other_than_mount(dir, path, flags, mode)
}

fn other_than_mount(dir: c_int, path: Text<'_>, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: openat(2) of a path, as its type says, and numbers.
    let make = || unsafe { real::openat(dir, path.pointer(), flags, mode) as isize };
    opened(dir, path, (flags, mode), make, || reopen(dir, path, flags))
}

/// What is to be known of a file that is opened by `make`, or, where it was before, by `again`.
fn opened(
    dir: c_int,
    path: Text<'_>,
    (flags, mode): (c_int, mode_t),
    make: impl Fn() -> isize,
    again: impl Fn() -> isize,
) -> c_int {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        journal::beyond(); // a file without a name is nobody's to find again
    }
    if flags & libc::O_TRUNC != 0
        && let Some(epoch) = shim().and_then(Shim::epoch)
        && let Some(path) = path.string()
    {
        epoch.empties(dir, path, flags & libc::O_NOFOLLOW == 0);
    }
    if flags & (libc::O_CREAT | libc::O_TRUNC) != 0 {
        let fd = open_changing((dir, path), flags, mode, make, again) as c_int;
        renumbered::remove(fd); // its number may have been another's
        if fd >= 0
            && let Some(epoch) = shim().and_then(Shim::epoch)
        {
            epoch.opened(fd, flags);
        }
        return fd;
    }
    let fd = make() as c_int;
    renumbered::remove(fd); // its number may have been another's
    if fd >= 0
        && let Some(shim) = shim()
    {
        by_another_name(shim, fd, flags);
        shim.image_opened(fd, flags);
    }
    fd
}

/// openat2(2), for which libc has no function. What belay does not know of its argument it passes
/// on.
///
/// # Safety
/// That of the system call.
pub(super) unsafe fn openat2(
    dir: c_int,
    path: *const c_char,
    how: *const c_void,
    size: size_t,
) -> c_int {
    let open = |how: *const c_void, size: size_t| {
        // SAFETY: the caller's arguments, or a copy of one of them.
        unsafe { belay_sys::raw::syscall(libc::SYS_openat2, dir, path, how, size) as isize }
    };
    if how.is_null() || size < size_of::<libc::open_how>() {
        return open(how, size) as c_int;
    }
    // SAFETY: the caller's structure has so many bytes and is readable during the call; read as it
    // lies.
    let mut known = unsafe { how.cast::<libc::open_how>().read_unaligned() };
    let (flags, mode) = (known.flags as c_int, known.mode as mode_t);
    // SAFETY: openat2(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    if let Some(fd) = device(path, flags) {
        return fd;
    }
    known.flags &= !((libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) as u64);
    known.mode = 0; // which only what creates may have
    let again = || open((&raw const known).cast(), size_of::<libc::open_how>());
    opened(dir, path, (flags, mode), || open(how, size), again)
}

/// open(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: open(2) takes a string, or null, which its caller leaves as it is until it returns.
    let path = unsafe { Text::new(path) };
    device(path, flags).unwrap_or_else(|| elsewhere(libc::AT_FDCWD, path, flags, mode))
}

/// open64(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open(path, flags | libc::O_LARGEFILE, mode) }
}

/// open(2) as _FORTIFY_SOURCE calls it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments; no file is created, so the mode means nothing.
    unsafe { open(path, flags, 0) }
}

/// open64(3) as _FORTIFY_SOURCE calls it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments; no file is created, so the mode means nothing.
    unsafe { open64(path, flags, 0) }
}

/// openat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn openat(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: openat(2) takes a string, or null, which its caller leaves as it is until it returns.
    let path = unsafe { Text::new(path) };
    device(path, flags).unwrap_or_else(|| elsewhere(dir, path, flags, mode))
}

/// openat64(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(dir, path, flags | libc::O_LARGEFILE, mode) }
}

/// creat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// creat64(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { creat(path, mode) }
}

/// close(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if descriptors::is_reserved(fd) {
        return real::fail(libc::EBADF) as c_int; // as if it were not there
    }
    renumbered::remove(fd);
    // SAFETY: the caller's argument, unchanged.
    unsafe { real::close(fd) }
}
