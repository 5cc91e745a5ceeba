//! Calls that make, remove and move names.

use super::made::{on_name, on_names, syscall};
use crate::argument::Text;
use crate::descriptors::names_changed;
use crate::effects::journal::{About, Call, arguments, beyond, effect};
use crate::effects::tag;
use crate::real;
use crate::shim::shim;
use belay_effects::Kind;
use belay_recorder::control::Flags;
use belay_wire::abi::RENAME_EXCHANGE;
use libc::{AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, c_char, c_int, c_uint, dev_t, mode_t};

/// RENAME_WHITEOUT of renameat2(2).
const WHITEOUT: c_uint = 4;

/// openat(2) that may create or cut a file. `again` opens it where it did so before.
pub(in crate::interpose) fn open_changing(
    (dir, path): (c_int, Text<'_>),
    flags: c_int,
    mode: mode_t,
    make: impl Fn() -> isize,
    again: impl Fn() -> isize,
) -> isize {
    const NEW: c_int = libc::O_CREAT | libc::O_EXCL;
    let shut = flags & libc::O_CREAT != 0 && mode & 0o600 != 0o600;
    let kind = match flags & NEW == NEW {
        true => Kind::OpenNew,
        false if shut => Kind::OpenShut,
        false => Kind::Open,
    };
    // Without O_CREAT there is no such argument in C: what is in its place is of no meaning.
    let mode_given = if flags & libc::O_CREAT != 0 { mode & 0o7777 } else { 0 };
    let numbers = [(flags & !libc::O_CLOEXEC) as u64, u64::from(mode_given)];
    let call = || Call {
        kind,
        digest: arguments(kind, &[path.bytes()], &numbers),
        about: About::Name(dir, path),
        length: 0,
    };
    if tag::get().appends
        && flags & (libc::O_CREAT | libc::O_APPEND) == libc::O_CREAT
        && let Some(shim) = shim()
    {
        shim.control().raise(Flags::CREATES_PLAIN);
    }
    effect(call, make, again)
}

/// Opens a file again that the dead generation had opened, without what opening does only once.
pub(in crate::interpose) fn reopen(dir: c_int, path: Text<'_>, flags: c_int) -> isize {
    let path = path.pointer();
    let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
    // SAFETY: openat(2) of a path, as its type says.
    let fd = unsafe { real::openat(dir, path, flags, 0) };
    if fd >= 0 || real::errno() != libc::EACCES {
        return fd as isize;
    }
    // Created with a mode that does not let its owner open it again: widened for a moment.
    let seen = syscall!(SYS_openat, dir, path, libc::O_PATH | libc::O_CLOEXEC, 0) as c_int;
    if seen < 0 {
        return -1;
    }
    let name = format!("/proc/self/fd/{seen}\0");
    let name = name.as_ptr().cast::<c_char>();
    // SAFETY: a zeroed stat is a valid value of that plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let known = syscall!(SYS_fstat, seen, &raw mut stat) == 0;
    let mode = stat.st_mode & 0o7777;
    let mut fd = -1;
    let mut errno = libc::EACCES;
    if known && syscall!(SYS_fchmodat, AT_FDCWD, name, mode | 0o600) == 0 {
        fd = syscall!(SYS_openat, AT_FDCWD, name, flags & !libc::O_NOFOLLOW, 0);
        errno = real::errno();
        syscall!(SYS_fchmodat, AT_FDCWD, name, mode);
    }
    syscall!(SYS_close, seen);
    real::set_errno(errno);
    fd
}

/// mkdir(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}

/// mkdirat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let make = || syscall!(SYS_mkdirat, dir, path, mode);
    // SAFETY: mkdirat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    on_name(Kind::Mkdir, (dir, path), &[u64::from(mode)], make)
}

/// mknod(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(AT_FDCWD, path, mode, device) }
}

/// mknodat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mknodat(
    dir: c_int,
    path: *const c_char,
    mode: mode_t,
    device: dev_t,
) -> c_int {
    // The kernel takes 32 bits.
    let make = || syscall!(SYS_mknodat, dir, path, mode, device as c_uint);
    // SAFETY: mknodat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    on_name(Kind::Mknod, (dir, path), &[u64::from(mode), device], make)
}

/// mknod(2) as programs built with glibc before 2.33 call it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __xmknod(
    _version: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: the old interface passes a pointer to the number, readable during the call.
    let device = unsafe { *device };
    // SAFETY: the caller's arguments.
    unsafe { mknodat(AT_FDCWD, path, mode, device) }
}

/// mknodat(2) as programs built with glibc before 2.33 call it.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __xmknodat(
    _version: c_int,
    dir: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: the old interface passes a pointer to the number, readable during the call.
    let device = unsafe { *device };
    // SAFETY: the caller's arguments.
    unsafe { mknodat(dir, path, mode, device) }
}

/// mkfifo(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(AT_FDCWD, path, mode | libc::S_IFIFO, 0) }
}

/// mkfifoat(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(dir, path, mode | libc::S_IFIFO, 0) }
}

/// link(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn link(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { linkat(AT_FDCWD, old, AT_FDCWD, new, 0) }
}

/// linkat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn linkat(
    old_dir: c_int,
    old: *const c_char,
    new_dir: c_int,
    new: *const c_char,
    flags: c_int,
) -> c_int {
    let make = || syscall!(SYS_linkat, old_dir, old, new_dir, new, flags);
    // SAFETY: linkat(2) takes two strings, or nulls, which its caller leaves as they are until it
    // returns.
    let (old, new) = unsafe { Text::both(old, new) };
    let about = if flags & AT_SYMLINK_FOLLOW == 0 { About::Names } else { About::Link };
    let call = || Call {
        kind: Kind::Link,
        digest: arguments(Kind::Link, &[old.bytes(), new.bytes()], &[flags as u64]),
        about: about((old_dir, old), (new_dir, new)),
        length: 0,
    };
    let done = effect(call, make, || 0) as c_int;
    names_changed();
    done
}

/// symlink(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { symlinkat(target, AT_FDCWD, path) }
}

/// symlinkat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn symlinkat(
    target: *const c_char,
    dir: c_int,
    path: *const c_char,
) -> c_int {
    let make = || syscall!(SYS_symlinkat, target, dir, path);
    // SAFETY: symlinkat(2) takes two strings, or nulls, which its caller leaves as they are until
    // it returns.
    let (target, path) = unsafe { Text::both(target, path) };
    let call = || Call {
        kind: Kind::Symlink,
        digest: arguments(Kind::Symlink, &[target.bytes(), path.bytes()], &[]),
        about: About::Name(dir, path),
        length: 0,
    };
    effect(call, make, || 0) as c_int
}

/// unlink(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

/// unlinkat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let kind = if flags & AT_REMOVEDIR == 0 { Kind::Unlink } else { Kind::Rmdir };
    let make = || syscall!(SYS_unlinkat, dir, path, flags);
    // SAFETY: unlinkat(2) takes a string, or null, which its caller leaves as it is until it
    // returns.
    let path = unsafe { Text::new(path) };
    let done = on_name(kind, (dir, path), &[flags as u64], make);
    names_changed();
    done
}

/// rmdir(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { unlinkat(AT_FDCWD, path, AT_REMOVEDIR) }
}

/// remove(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    let done = unsafe { unlink(path) };
    if done == 0 || !matches!(real::errno(), libc::EISDIR | libc::EPERM) {
        return done;
    }
    // SAFETY: the caller's arguments.
    unsafe { rmdir(path) }
}

/// rename(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { renameat2(AT_FDCWD, old, AT_FDCWD, new, 0) }
}

/// renameat(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn renameat(
    old_dir: c_int,
    old: *const c_char,
    new_dir: c_int,
    new: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { renameat2(old_dir, old, new_dir, new, 0) }
}

/// renameat2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn renameat2(
    old_dir: c_int,
    old: *const c_char,
    new_dir: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    if flags & WHITEOUT != 0 {
        beyond(); // the old name is there afterwards as well
    }
    let kind = if flags & RENAME_EXCHANGE != 0 { Kind::Exchange } else { Kind::Rename };
    let make = || syscall!(SYS_renameat2, old_dir, old, new_dir, new, flags);
    // SAFETY: renameat2(2) takes two strings, or nulls, which its caller leaves as they are until
    // it returns.
    let (old, new) = unsafe { Text::both(old, new) };
    let done = on_names(kind, (old_dir, old), (new_dir, new), &[u64::from(flags)], make);
    names_changed();
    done
}
