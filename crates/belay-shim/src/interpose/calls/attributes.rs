//! Modes, owners, times and extended attributes.

use super::{bytes, on_file, on_name, syscall};
use crate::effects::journal::{About, Call, arguments, effect};
use crate::real;
use belay_effects::Kind;
use libc::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_void, gid_t, mode_t, timespec, timeval, uid_t,
    utimbuf,
};

/// chmod(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    let make = || syscall!(SYS_fchmodat, AT_FDCWD, path, mode);
    on_name(Kind::Mode, (AT_FDCWD, path), &[u64::from(mode)], make)
}

/// fchmod(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    on_file(Kind::Mode, fd, &[u64::from(mode)], || syscall!(SYS_fchmod, fd, mode)) as c_int
}

/// fchmodat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fchmodat(
    dir: c_int,
    path: *const c_char,
    mode: mode_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments. libc makes up for kernels without fchmodat2(2).
    let make = || unsafe { real::fchmodat(dir, path, mode, flags) as isize };
    on_name(Kind::Mode, (dir, path), &[u64::from(mode), flags as u64], make)
}

/// chown(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fchownat(AT_FDCWD, path, uid, gid, 0) }
}

/// lchown(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW) }
}

/// fchown(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    let numbers = [u64::from(uid), u64::from(gid)];
    on_file(Kind::Owner, fd, &numbers, || syscall!(SYS_fchown, fd, uid, gid)) as c_int
}

/// fchownat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fchownat(
    dir: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    let numbers = [u64::from(uid), u64::from(gid), flags as u64];
    let make = || syscall!(SYS_fchownat, dir, path, uid, gid, flags);
    on_name(Kind::Owner, (dir, path), &numbers, make)
}

/// The numbers in two times; those of a null pointer mean now.
fn numbers(times: *const timespec) -> [u64; 5] {
    if times.is_null() {
        return [0; 5];
    }
    // SAFETY: utimensat(2) and futimens(3) take two of these, readable during the call.
    let [a, b] = unsafe { *times.cast::<[timespec; 2]>() };
    [1, a.tv_sec as u64, a.tv_nsec as u64, b.tv_sec as u64, b.tv_nsec as u64]
}

/// utimensat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn utimensat(
    dir: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    let make = || syscall!(SYS_utimensat, dir, path, times, flags);
    on_name(Kind::Times, (dir, path), &numbers(times), make)
}

/// futimens(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn futimens(fd: c_int, times: *const timespec) -> c_int {
    let nothing: *const c_char = std::ptr::null();
    let make = || syscall!(SYS_utimensat, fd, nothing, times, 0);
    on_file(Kind::Times, fd, &numbers(times), make) as c_int
}

/// Two times in microseconds as ones in nanoseconds.
fn precise(times: *const timeval) -> Option<[timespec; 2]> {
    if times.is_null() {
        return None;
    }
    // SAFETY: the utimes(2) family takes two of these, readable during the call.
    let pair = unsafe { *times.cast::<[timeval; 2]>() };
    Some(pair.map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 }))
}

fn pointer(times: &Option<[timespec; 2]>) -> *const timespec {
    times.as_ref().map_or(std::ptr::null(), |pair| pair.as_ptr())
}

/// utimes(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn utimes(path: *const c_char, times: *const timeval) -> c_int {
    let times = precise(times);
    // SAFETY: the caller's path, and live times.
    unsafe { utimensat(AT_FDCWD, path, pointer(&times), 0) }
}

/// lutimes(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
    let times = precise(times);
    // SAFETY: the caller's path, and live times.
    unsafe { utimensat(AT_FDCWD, path, pointer(&times), AT_SYMLINK_NOFOLLOW) }
}

/// futimes(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn futimes(fd: c_int, times: *const timeval) -> c_int {
    let times = precise(times);
    // SAFETY: the caller's descriptor, and live times.
    unsafe { futimens(fd, pointer(&times)) }
}

/// futimesat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn futimesat(
    dir: c_int,
    path: *const c_char,
    times: *const timeval,
) -> c_int {
    let times = precise(times);
    // SAFETY: the caller's directory and path, and live times.
    unsafe { utimensat(dir, path, pointer(&times), 0) }
}

/// utime(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn utime(path: *const c_char, times: *const utimbuf) -> c_int {
    let times = (!times.is_null()).then(|| {
        // SAFETY: utime(2) takes one of these, readable during the call.
        let times = unsafe { *times };
        [times.actime, times.modtime].map(|tv_sec| timespec { tv_sec, tv_nsec: 0 })
    });
    // SAFETY: the caller's path, and live times.
    unsafe { utimensat(AT_FDCWD, path, pointer(&times), 0) }
}

/// The bytes of an extended attribute's value.
fn value<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if at.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: setxattr(2) takes `len` bytes there, readable until it returns.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }
}

/// Setting an extended attribute.
fn set(
    about: About,
    (path, name): (*const c_char, *const c_char),
    (at, len): (*const c_void, usize),
    flags: c_int,
    make: impl Fn() -> isize,
) -> c_int {
    let new = flags & libc::XATTR_CREATE != 0;
    let kind = if new { Kind::XattrCreate } else { Kind::XattrSet };
    let call = || Call {
        kind,
        digest: arguments(kind, &[bytes(path), bytes(name), value(at, len)], &[flags as u64]),
        about,
        length: 0,
    };
    effect(call, make, || 0) as c_int
}

/// setxattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setxattr(
    path: *const c_char,
    name: *const c_char,
    at: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    let about = About::NameAttribute(path, true, name);
    let make = || syscall!(SYS_setxattr, path, name, at, len, flags);
    set(about, (path, name), (at, len), flags, make)
}

/// lsetxattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsetxattr(
    path: *const c_char,
    name: *const c_char,
    at: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    let about = About::NameAttribute(path, false, name);
    let make = || syscall!(SYS_lsetxattr, path, name, at, len, flags);
    set(about, (path, name), (at, len), flags, make)
}

/// fsetxattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fsetxattr(
    fd: c_int,
    name: *const c_char,
    at: *const c_void,
    len: usize,
    flags: c_int,
) -> c_int {
    let about = About::FileAttribute(fd, name);
    let make = || syscall!(SYS_fsetxattr, fd, name, at, len, flags);
    set(about, (std::ptr::null(), name), (at, len), flags, make)
}

/// Removing an extended attribute.
fn remove(
    about: About,
    (path, name): (*const c_char, *const c_char),
    make: impl Fn() -> isize,
) -> c_int {
    let kind = Kind::XattrRemove;
    let call = || Call {
        kind,
        digest: arguments(kind, &[bytes(path), bytes(name)], &[]),
        about,
        length: 0,
    };
    effect(call, make, || 0) as c_int
}

/// removexattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
    let about = About::NameAttribute(path, true, name);
    remove(about, (path, name), || syscall!(SYS_removexattr, path, name))
}

/// lremovexattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
    let about = About::NameAttribute(path, false, name);
    remove(about, (path, name), || syscall!(SYS_lremovexattr, path, name))
}

/// fremovexattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
    let about = About::FileAttribute(fd, name);
    remove(about, (std::ptr::null(), name), || syscall!(SYS_fremovexattr, fd, name))
}
