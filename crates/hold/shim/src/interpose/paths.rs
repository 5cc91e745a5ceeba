//! Looks at paths: a successor must not look at the mount that it is to serve (see `standin`).

use super::calls::look;
use crate::argument::{Output, Text};
use crate::real;
use crate::standin::{instead, resolved};
use belay_effects::Kind;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, DIR, c_char, c_int, c_uint, c_void};
use std::ffi::CString;

/// The stand-in for the path of a call, if it needs one.
#[inline]
fn standin(dir: c_int, path: Text<'_>, follow: bool) -> Option<CString> {
    instead(dir, path.string()?, follow)
}

/// The path to use in the place of `path`, which is an argument of the function that this stands
/// in.
macro_rules! replaced {
    ($name:ident, $dir:expr, $path:expr, $follow:expr) => {
        // SAFETY: that function takes a string, or null, which its caller leaves as it is until it
        // returns.
        let given = unsafe { Text::new($path) };
        let found = standin($dir, given, $follow);
        let $name = found.as_deref().map_or(given, Text::from);
    };
}

/// newfstatat(2): all of libc's are this one on 64-bit machines, where its structure is the
/// kernel's.
///
/// # Safety
/// As that.
unsafe fn status(dir: c_int, path: *const c_char, into: *mut c_void, flags: c_int) -> c_int {
    replaced!(path, dir, path, flags & AT_SYMLINK_NOFOLLOW == 0);
    // SAFETY: it fills this structure, which is its caller's alone until it returns.
    let out = unsafe { Output::new(into, size_of::<libc::stat>()) };
    look(Kind::Stat, path, &[flags as u64], out, || {
        let path = path.pointer();
        // SAFETY: the caller's arguments, but perhaps for the path, which is a live string.
        unsafe { belay_sys::raw::syscall(libc::SYS_newfstatat, dir, path, into, flags) as isize }
    })
}

macro_rules! looks {
    ($($name:ident, $old:ident => $flags:expr;)*) => {$(
        /// stat(2) or lstat(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, into: *mut c_void) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { status(AT_FDCWD, path, into, $flags) }
        }

        /// The same as programs built with glibc before 2.33 call it.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $old(
            _version: c_int,
            path: *const c_char,
            into: *mut c_void,
        ) -> c_int {
            // SAFETY: the caller's arguments; 64-bit machines have one version of the structure.
            unsafe { status(AT_FDCWD, path, into, $flags) }
        }
    )*};
}

looks! {
    stat, __xstat => 0;
    stat64, __xstat64 => 0;
    lstat, __lxstat => AT_SYMLINK_NOFOLLOW;
    lstat64, __lxstat64 => AT_SYMLINK_NOFOLLOW;
}

macro_rules! looks_at {
    ($($name:ident, $old:ident;)*) => {$(
        /// fstatat(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            dir: c_int,
            path: *const c_char,
            into: *mut c_void,
            flags: c_int,
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { status(dir, path, into, flags) }
        }

        /// The same as programs built with glibc before 2.33 call it.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $old(
            _version: c_int,
            dir: c_int,
            path: *const c_char,
            into: *mut c_void,
            flags: c_int,
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { status(dir, path, into, flags) }
        }
    )*};
}

looks_at! {
    fstatat, __fxstatat;
    fstatat64, __fxstatat64;
}

/// statx(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut c_void,
) -> c_int {
    replaced!(path, dir, path, flags & AT_SYMLINK_NOFOLLOW == 0);
    let numbers = [flags as u64, u64::from(mask)];
    // SAFETY: it fills this structure, which is its caller's alone until it returns.
    let out = unsafe { Output::new(into, size_of::<libc::statx>()) };
    look(Kind::Stat, path, &numbers, out, || {
        let path = path.pointer();
        // SAFETY: the caller's arguments, but perhaps for the path, which is a live string.
        unsafe { belay_sys::raw::syscall(libc::SYS_statx, dir, path, flags, mask, into) as isize }
    })
}

/// access(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn access(path: *const c_char, mode: c_int) -> c_int {
    replaced!(path, AT_FDCWD, path, true);
    // SAFETY: as above.
    let make = || unsafe { real::access(path.pointer(), mode) as isize };
    look(Kind::Access, path, &[mode as u64], Output::NONE, make)
}

/// faccessat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn faccessat(
    dir: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    replaced!(path, dir, path, flags & AT_SYMLINK_NOFOLLOW == 0);
    // SAFETY: as above.
    let make = || unsafe { real::faccessat(dir, path.pointer(), mode, flags) as isize };
    look(Kind::Access, path, &[mode as u64, flags as u64], Output::NONE, make)
}

/// chdir(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn chdir(path: *const c_char) -> c_int {
    replaced!(path, AT_FDCWD, path, true);
    // SAFETY: as above.
    unsafe { real::chdir(path.pointer()) }
}

/// opendir(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn opendir(path: *const c_char) -> *mut DIR {
    replaced!(path, AT_FDCWD, path, true);
    // SAFETY: as above.
    unsafe { real::opendir(path.pointer()) }
}

macro_rules! spaces {
    ($($name:ident: $space:ty => $real:ident;)*) => {$(
        /// statfs(2), statvfs(3).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, into: *mut $space) -> c_int {
            replaced!(path, AT_FDCWD, path, true);
            // SAFETY: as above.
            let make = || unsafe { real::$real(path.pointer(), into) as isize };
            // SAFETY: it fills this structure, which is its caller's alone until it returns.
            let into = unsafe { Output::new(into.cast(), size_of::<$space>()) };
            look(Kind::Statvfs, path, &[], into, make)
        }
    )*};
}

// On 64-bit machines statfs and statfs64 have one structure.
spaces! {
    statfs: libc::statfs => statfs;
    statfs64: libc::statfs => statfs;
    statvfs: libc::statvfs => statvfs;
    statvfs64: libc::statvfs => statvfs64;
}

/// scandir(3), which opens the directory by a function of libc's own.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn scandir(
    path: *const c_char,
    into: *mut c_void,
    filter: *const c_void,
    order: *const c_void,
) -> c_int {
    replaced!(path, AT_FDCWD, path, true);
    // SAFETY: as above.
    unsafe { real::scandir(path.pointer(), into, filter, order) }
}

/// The same: on 64-bit machines both have one structure.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn scandir64(
    path: *const c_char,
    into: *mut c_void,
    filter: *const c_void,
    order: *const c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { scandir(path, into, filter, order) }
}

/// realpath(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: realpath(3) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let found = unsafe { Text::new(path) }.string().and_then(resolved);
    if let Some(found) = found.filter(|found| found.count_bytes() < libc::PATH_MAX as usize) {
        if into.is_null() {
            // SAFETY: a live string; the copy is malloc's, as the caller expects.
            return unsafe { libc::strdup(found.as_ptr()) };
        }
        // SAFETY: the caller's buffer has PATH_MAX bytes, and this has fewer (just seen).
        return unsafe { libc::strcpy(into, found.as_ptr()) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::realpath(path, into) }
}

/// realpath(3) as _FORTIFY_SOURCE calls it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __realpath_chk(
    path: *const c_char,
    into: *mut c_char,
    room: usize,
) -> *mut c_char {
    if room < libc::PATH_MAX as usize {
        std::process::abort(); // as glibc does
    }
    // SAFETY: the caller's arguments.
    unsafe { realpath(path, into) }
}
