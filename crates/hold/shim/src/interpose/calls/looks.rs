//! Calls that ask only. What they give is logged with a request that changes something, since it
//! may have decided by it, and its own changes may have made the answer another.

use super::image_io::image_end;
use super::made::syscall;
use crate::argument::{Output, Text};
use crate::effects::journal::{arguments, read};
use crate::real;
use crate::shim::policy;
use belay_effects::Kind;
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};

/// A call that gives 0 or -1, and fills a structure.
pub(in crate::interpose) fn look(
    kind: Kind,
    path: Text<'_>,
    numbers: &[u64],
    into: Output<'_>,
    make: impl Fn() -> isize,
) -> c_int {
    let digest = || arguments(kind, &[path.bytes()], numbers);
    let size = into.len();
    let filled = |result| if result == 0 { size } else { 0 };
    read(kind, digest, into, filled, make, None) as c_int
}

/// A call that fills a buffer and gives how much.
fn fill(
    kind: Kind,
    (path, name): (Text<'_>, Text<'_>),
    into: Output<'_>,
    make: impl Fn() -> isize,
) -> isize {
    let room = into.len() as u64;
    let digest = || arguments(kind, &[path.bytes(), name.bytes()], &[room]);
    let filled = |result| usize::try_from(result).unwrap_or(0);
    read(kind, digest, into, filled, make, None)
}

/// fstat(2). Its arguments do not say which file is meant, in a life where descriptors have other
/// numbers: its answer does.
///
/// # Safety
/// As that of fstat(2).
unsafe fn of_file(fd: c_int, into: *mut c_void) -> c_int {
    let found = syscall!(SYS_fstat, fd, into);
    if found != 0 || !policy().records() {
        return found as c_int;
    }
    // SAFETY: the call has just filled its caller's structure.
    let mut stat = unsafe { into.cast::<libc::stat>().read_unaligned() };
    if let Some(end) = image_end(fd).filter(|_| stat.st_mode & libc::S_IFMT == libc::S_IFREG) {
        stat.st_size = end;
        // SAFETY: as above: a structure of that type, which is there to be filled.
        unsafe { into.cast::<libc::stat>().write_unaligned(stat) };
    }
    let numbers = [stat.st_dev, stat.st_ino];
    // SAFETY: fstat(2) fills this structure, which is its caller's alone until it returns.
    let into = unsafe { Output::new(into, size_of::<libc::stat>()) };
    look(Kind::Stat, Text::NONE, &numbers, into, || found)
}

macro_rules! files {
    ($($name:ident, $old:ident;)*) => {$(
        /// fstat(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, into: *mut c_void) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { of_file(fd, into) }
        }

        /// The same as programs built with glibc before 2.33 call it.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $old(
            _version: c_int,
            fd: c_int,
            into: *mut c_void,
        ) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { of_file(fd, into) }
        }
    )*};
}

files! {
    fstat, __fxstat;
    fstat64, __fxstat64;
}

/// readlink(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readlink(
    path: *const c_char,
    into: *mut c_char,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { readlinkat(AT_FDCWD, path, into, room) }
}

/// readlinkat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readlinkat(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    room: size_t,
) -> ssize_t {
    let make = || syscall!(SYS_readlinkat, dir, path, into, room);
    // SAFETY: readlinkat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    // SAFETY: it fills at most `room` bytes, which are its caller's alone for so long.
    let into = unsafe { Output::new(into.cast(), room) };
    fill(Kind::ReadLink, (path, Text::NONE), into, make)
}

macro_rules! attributes {
    ($($get:ident, $get_call:ident, $list:ident, $list_call:ident;)*) => {$(
        /// Reads an extended attribute.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $get(
            path: *const c_char,
            name: *const c_char,
            into: *mut c_void,
            room: size_t,
        ) -> ssize_t {
            let make = || syscall!($get_call, path, name, into, room);
            // SAFETY: getxattr(2) takes two strings, or nulls, which its caller leaves as they are
            // until it returns.
            let names = unsafe { Text::both(path, name) };
            // SAFETY: it fills at most `room` bytes, which are its caller's alone for so long.
            let into = unsafe { Output::new(into, room) };
            fill(Kind::Xattr, names, into, make)
        }

        /// Lists extended attributes.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $list(
            path: *const c_char,
            into: *mut c_char,
            room: size_t,
        ) -> ssize_t {
            let make = || syscall!($list_call, path, into, room);
            // SAFETY: listxattr(2) takes a string, or null, which its caller leaves as it is until
            // it returns.
            let path = unsafe { Text::new(path) };
            // SAFETY: it fills at most `room` bytes, which are its caller's alone for so long.
            let into = unsafe { Output::new(into.cast(), room) };
            fill(Kind::Xattr, (path, Text::NONE), into, make)
        }
    )*};
}

attributes! {
    getxattr, SYS_getxattr, listxattr, SYS_listxattr;
    lgetxattr, SYS_lgetxattr, llistxattr, SYS_llistxattr;
}

/// fgetxattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fgetxattr(
    fd: c_int,
    name: *const c_char,
    into: *mut c_void,
    room: size_t,
) -> ssize_t {
    let make = || syscall!(SYS_fgetxattr, fd, name, into, room);
    // SAFETY: fgetxattr(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let name = unsafe { Text::new(name) };
    // SAFETY: it fills at most `room` bytes, which are its caller's alone for so long.
    let into = unsafe { Output::new(into, room) };
    fill(Kind::Xattr, (Text::NONE, name), into, make)
}

/// flistxattr(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn flistxattr(fd: c_int, into: *mut c_char, room: size_t) -> ssize_t {
    let make = || syscall!(SYS_flistxattr, fd, into, room);
    // SAFETY: flistxattr(2) fills at most `room` bytes, which are its caller's alone until it
    // returns.
    let into = unsafe { Output::new(into.cast(), room) };
    fill(Kind::Xattr, (Text::NONE, Text::NONE), into, make)
}

macro_rules! spaces {
    ($($name:ident)*) => {$(
        /// fstatvfs(3).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, into: *mut libc::statvfs) -> c_int {
            // SAFETY: the caller's arguments.
            let make = || unsafe { real::$name(fd, into) as isize };
            // SAFETY: it fills this structure, which is its caller's alone until it returns.
            let into = unsafe { Output::new(into.cast(), size_of::<libc::statvfs>()) };
            look(Kind::Statvfs, Text::NONE, &[], into, make)
        }
    )*};
}

spaces! { fstatvfs fstatvfs64 }
