//! Copies within the kernel.

use super::files::kind_of;
use super::image_io::{is_read_by, passes_by};
use super::made::syscall;
use crate::effects::journal::{About, Call, arguments, effect};
use crate::effects::matters;
use crate::positions;
use crate::real;
use belay_effects::Kind;
use libc::{c_int, c_uint, off_t, size_t, ssize_t};

/// copy_file_range(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let make = || syscall!(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
    copy(from, to, len, libc::EOPNOTSUPP, make)
}

macro_rules! sends {
    ($($name:ident;)*) => {$(
        /// sendfile(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            to: c_int,
            from: c_int,
            from_at: *mut off_t,
            len: size_t,
        ) -> ssize_t {
            copy(from, to, len, libc::EINVAL, || syscall!(SYS_sendfile, to, from, from_at, len))
        }
    )*};
}

sends! {
    sendfile;
    sendfile64;
}

/// splice(2) between anything but the device.
pub(in crate::interpose) fn splice_here(
    from: c_int,
    to: c_int,
    len: usize,
    make: impl Fn() -> isize,
) -> isize {
    if !matters() {
        return make();
    }
    if kind_of(to) == Kind::Send && is_pipe(to) {
        // Data on its way through the daemon.
        return if leaves(from, libc::EINVAL) { make() } else { -1 };
    }
    copy(from, to, len, libc::EINVAL, make)
}

/// A copy within the kernel; `refusal` is what it fails with where it cannot be followed: that at
/// which callers fall back on reading and writing. What was copied is not given from the record,
/// since the caller's offsets would not follow: it is done again, and gives the same.
fn copy(from: c_int, to: c_int, len: usize, refusal: c_int, make: impl Fn() -> isize) -> isize {
    if passes_by(to) {
        real::set_errno(refusal);
        return -1;
    }
    if !leaves(from, refusal) {
        return -1;
    }
    positions::hand_back(to);
    let call = || {
        let kind = if kind_of(to) == Kind::Send { Kind::Send } else { Kind::Copy };
        let digest = arguments(kind, &[], &[len as u64]);
        Call { kind, digest, about: About::File(to), length: len as u64 }
    };
    effect(call, &make, &make)
}

/// Whether the kernel may read `from` by itself; if not, errno is `refusal`.
fn leaves(from: c_int, refusal: c_int) -> bool {
    if is_read_by(from) {
        real::set_errno(refusal);
        return false;
    }
    positions::hand_back(from);
    true
}

fn is_pipe(fd: c_int) -> bool {
    // SAFETY: a zeroed stat is a valid value of that plain C structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    syscall!(SYS_fstat, fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
}
