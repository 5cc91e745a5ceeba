//! Modes, owners, times and extended attributes.

use super::made::{on_file, on_name, syscall};
use crate::argument::{Input, Text};
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
    // SAFETY: chmod(2) takes a string, or null, which its caller leaves as it is until it returns.
    let path = unsafe { Text::new(path) };
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
    // SAFETY: fchmodat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
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
    // SAFETY: fchownat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    on_name(Kind::Owner, (dir, path), &numbers, make)
}

/// The numbers in two times; none means now.
fn numbers(times: Option<&[timespec; 2]>) -> [u64; 5] {
    let Some([a, b]) = times else { return [0; 5] };
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
    // SAFETY: utimensat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    // SAFETY: it takes two times, or null, for which the same holds.
    let times = unsafe { times.cast::<[timespec; 2]>().as_ref() };
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
    // SAFETY: futimens(3) takes two times, or null, which its caller leaves as they are until it
    // returns.
    let times = unsafe { times.cast::<[timespec; 2]>().as_ref() };
    on_file(Kind::Times, fd, &numbers(times), make) as c_int
}

/// Two times in microseconds as ones in nanoseconds.
///
/// # Safety
/// `times` is null, or two times can be read there.
unsafe fn precise(times: *const timeval) -> Option<[timespec; 2]> {
    // SAFETY: the caller's contract.
    let pair = *unsafe { times.cast::<[timeval; 2]>().as_ref() }?;
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
    // SAFETY: the caller's argument.
    let times = unsafe { precise(times) };
    // SAFETY: the caller's path, and live times.
    unsafe { utimensat(AT_FDCWD, path, pointer(&times), 0) }
}

/// lutimes(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's argument.
    let times = unsafe { precise(times) };
    // SAFETY: the caller's path, and live times.
    unsafe { utimensat(AT_FDCWD, path, pointer(&times), AT_SYMLINK_NOFOLLOW) }
}

/// futimes(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn futimes(fd: c_int, times: *const timeval) -> c_int {
    // SAFETY: the caller's argument.
    let times = unsafe { precise(times) };
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
    // SAFETY: the caller's argument.
    let times = unsafe { precise(times) };
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
///
/// # Safety
/// What [`Text::new`] asks holds for both.
unsafe fn of_target<'c>(path: *const c_char, name: *const c_char) -> About<'c> {
    // SAFETY: the caller's contract.
    let (path, name) = unsafe { Text::both(path, name) };
    About::NameAttribute(path, true, name)
}

/// An attribute of what a path names, also if that is a link.
///
/// # Safety
/// What [`Text::new`] asks holds for both.
unsafe fn of_link<'c>(path: *const c_char, name: *const c_char) -> About<'c> {
    // SAFETY: the caller's contract.
    let (path, name) = unsafe { Text::both(path, name) };
    About::NameAttribute(path, false, name)
}

/// An attribute of an open file.
///
/// # Safety
/// What [`Text::new`] asks holds for the name.
unsafe fn of_file<'c>(fd: c_int, name: *const c_char) -> About<'c> {
    // SAFETY: the caller's contract.
    About::FileAttribute(fd, unsafe { Text::new(name) })
}

/// The path, if it is one, and the name of an extended attribute.
fn strings(about: About<'_>) -> [&[u8]; 2] {
    match about {
        About::NameAttribute(path, _, name) => [path.bytes(), name.bytes()],
        About::FileAttribute(_, name) => [&[], name.bytes()],
        _ => [&[]; 2],
    }
}

/// Setting an extended attribute.
fn set(about: About<'_>, value: Input<'_>, flags: c_int, make: impl Fn() -> isize) -> c_int {
    let new = flags & libc::XATTR_CREATE != 0;
    let kind = if new { Kind::XattrCreate } else { Kind::XattrSet };
    let call = || {
        let [path, name] = strings(about);
        let digest = arguments(kind, &[path, name, value.bytes()], &[flags as u64]);
        Call { kind, digest, about, length: 0 }
    };
    effect(call, make, || 0) as c_int
}

/// Removing an extended attribute.
fn remove(about: About<'_>, make: impl Fn() -> isize) -> c_int {
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
            // SAFETY: setxattr(2) takes strings, or nulls, which its caller leaves as they are
            // until it returns.
            let about = unsafe { $about(of, name) };
            // SAFETY: it reads `len` bytes at `at`, for which the same holds.
            let value = unsafe { Input::new(at, len) };
            set(about, value, flags, make)
        }

        /// removexattr(2), lremovexattr(2) or fremovexattr(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $remove(of: $of, name: *const c_char) -> c_int {
            // SAFETY: removexattr(2) takes strings, or nulls, which its caller leaves as they are
            // until it returns.
            let about = unsafe { $about(of, name) };
            remove(about, || syscall!($remove_number, of, name))
        }
    )*};
}

/// A path as C has it.
type Path = *const c_char;

attributes! {
    Path: of_target, setxattr, SYS_setxattr, removexattr, SYS_removexattr;
    Path: of_link, lsetxattr, SYS_lsetxattr, lremovexattr, SYS_lremovexattr;
    c_int: of_file, fsetxattr, SYS_fsetxattr, fremovexattr, SYS_fremovexattr;
}
