//! Modes, owners, times and extended attributes.

use super::memory::slice;
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

/// An attribute of what a path leads to.
fn of_target(path: *const c_char, name: *const c_char) -> About {
    About::NameAttribute(path, true, name)
}

/// An attribute of what a path names, also if that is a link.
fn of_link(path: *const c_char, name: *const c_char) -> About {
    About::NameAttribute(path, false, name)
}

/// The path, if it is one, and the name of an extended attribute.
fn strings<'a>(about: About) -> [&'a [u8]; 2] {
    match about {
        About::NameAttribute(path, _, name) => [bytes(path), bytes(name)],
        About::FileAttribute(_, name) => [&[], bytes(name)],
        _ => [&[]; 2],
    }
}

/// Setting an extended attribute.
fn set(
    about: About,
    (at, len): (*const c_void, usize),
    flags: c_int,
    make: impl Fn() -> isize,
) -> c_int {
    let new = flags & libc::XATTR_CREATE != 0;
    let kind = if new { Kind::XattrCreate } else { Kind::XattrSet };
    let call = || {
        let [path, name] = strings(about);
        let digest = arguments(kind, &[path, name, slice(at, len)], &[flags as u64]);
        Call { kind, digest, about, length: 0 }
    };
    effect(call, make, || 0) as c_int
}

/// Removing an extended attribute.
fn remove(about: About, make: impl Fn() -> isize) -> c_int {
    let kind = Kind::XattrRemove;
    let call = || Call { kind, digest: arguments(kind, &strings(about), &[]), about, length: 0 };
    effect(call, make, || 0) as c_int
}

macro_rules! attributes {
    ($($of:ident: $about:path,
        $set:ident, $set_number:ident, $remove:ident, $remove_number:ident;)*) => {$(
        /// setxattr(2), lsetxattr(2) or fsetxattr(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $set(
            of: $of,
            name: *const c_char,
            at: *const c_void,
            len: usize,
            flags: c_int,
        ) -> c_int {
            let make = || syscall!($set_number, of, name, at, len, flags);
            set($about(of, name), (at, len), flags, make)
        }

        /// removexattr(2), lremovexattr(2) or fremovexattr(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $remove(of: $of, name: *const c_char) -> c_int {
            remove($about(of, name), || syscall!($remove_number, of, name))
        }
    )*};
}

/// A path as C has it.
type Path = *const c_char;

attributes! {
    Path: of_target, setxattr, SYS_setxattr, removexattr, SYS_removexattr;
    Path: of_link, lsetxattr, SYS_lsetxattr, lremovexattr, SYS_lremovexattr;
    c_int: About::FileAttribute, fsetxattr, SYS_fsetxattr, fremovexattr, SYS_fremovexattr;
}
