//! What there is to be seen of a call whose outcome is not known, and what must be seen before a
//! call that could not be told from its repetition otherwise.

use super::journal::{About, Call};
use crate::argument::Text;
use belay_effects::Kind;
use belay_effects::journal::before_write;
use belay_effects::probe::{File, PRESENT, Probed};
use libc::c_int;

/// What is to be known before a call: one or two more system calls, for calls that are rare or make
/// something. `asked`: from where on the request is to change the file ([`super::tag::Tag`]).
pub(super) fn before(call: &Call<'_>, asked: u64) -> u64 {
    match (call.kind, call.about) {
        (Kind::Append | Kind::Shift, About::File(fd)) => of_file(fd).map_or(0, |file| file.size),
        // Who writes what was asked for fills up no block before that: it matters to nobody how
        // long the file is.
        (Kind::WriteAt, About::Offset(_, offset)) if offset >= asked => before_write(offset, 0, 0),
        (Kind::WriteAt, About::Offset(fd, offset)) => {
            before_write(offset, call.length, of_file(fd).map_or(0, |file| file.size))
        }
        (Kind::Exchange, About::Names(first, _)) => of_name(first).map_or(0, |file| file.id.1),
        (
            Kind::OpenNew
            | Kind::OpenShut
            | Kind::Mkdir
            | Kind::Mknod
            | Kind::Symlink
            | Kind::Unlink
            | Kind::Rmdir,
            About::Name(dir, path),
        ) if of_name((dir, path)).is_some() => PRESENT,
        (Kind::XattrCreate | Kind::XattrRemove, about) if has_attribute(about) => PRESENT,
        _ => 0,
    }
}

/// What there is now.
pub(super) fn observe(call: &Call<'_>) -> Probed {
    let mut probed = Probed::default();
    match call.about {
        About::Name(dir, path) => probed.first = of_name((dir, path)),
        About::Names(first, second) => {
            probed.first = of_name(first);
            probed.second = of_name(second);
        }
        About::Link((dir, path), second) => {
            probed.first = status(dir, path, libc::AT_EMPTY_PATH);
            probed.second = of_name(second);
        }
        About::File(fd) | About::Offset(fd, _) => probed.first = of_file(fd),
        about => probed.attribute = has_attribute(about),
    }
    probed
}

fn of_file(fd: c_int) -> Option<File> {
    status(fd, c"".into(), libc::AT_EMPTY_PATH)
}

fn of_name((dir, path): (c_int, Text<'_>)) -> Option<File> {
    status(dir, path, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)
}

fn status(dir: c_int, path: Text<'_>, flags: c_int) -> Option<File> {
    const MASK: libc::c_uint = libc::STATX_INO | libc::STATX_SIZE | libc::STATX_TYPE;
    // SAFETY: a zeroed statx is a valid value of that plain C structure.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let path = path.pointer();
    // SAFETY: a path, as its type says, and a live structure.
    let failed =
        unsafe { belay_sys::raw::syscall(libc::SYS_statx, dir, path, flags, MASK, &raw mut found) }
            != 0;
    if failed {
        return None;
    }
    let device = (u64::from(found.stx_dev_major) << 32) | u64::from(found.stx_dev_minor);
    let file_type = u32::from(found.stx_mode) & libc::S_IFMT;
    Some(File { id: (device, found.stx_ino), size: found.stx_size, file_type })
}

fn has_attribute(about: About<'_>) -> bool {
    let nothing: *mut libc::c_void = std::ptr::null_mut();
    let n = match about {
        About::NameAttribute(path, follow, name) => {
            let call = if follow { libc::SYS_getxattr } else { libc::SYS_lgetxattr };
            let (path, name) = (path.pointer(), name.pointer());
            // SAFETY: strings, as their type says; a size of 0 asks for the length only.
            unsafe { belay_sys::raw::syscall(call, path, name, nothing, 0_usize) }
        }
        About::FileAttribute(fd, name) => {
            let name = name.pointer();
            // SAFETY: a number, and a string, as its type says; a size of 0 asks for the length
            // only.
            unsafe { belay_sys::raw::syscall(libc::SYS_fgetxattr, fd, name, nothing, 0_usize) }
        }
        _ => -1,
    };
    n >= 0
}
