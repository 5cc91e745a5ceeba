//! Calls that set how long a file is and what of it is allocated.

use super::image_io::{image_length, is_named, passes_by};
use super::made::{on_file, on_name, syscall};
use crate::argument::Text;
use crate::real;
use belay_effects::Kind;
use libc::{AT_FDCWD, c_char, c_int, off_t};

/// FALLOC_FL_COLLAPSE_RANGE and FALLOC_FL_INSERT_RANGE.
const SHIFTS: c_int = 0x08 | 0x20;

macro_rules! lengths {
    ($($by_name:ident, $by_file:ident;)*) => {$(
        /// truncate(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $by_name(path: *const c_char, length: off_t) -> c_int {
            let make = || syscall!(SYS_truncate, path, length);
            // SAFETY: truncate(2) takes a string, or null, which its caller leaves as it is until
            // it returns.
            let path = unsafe { Text::new(path) };
            if is_named(path) {
                real::set_errno(libc::EOPNOTSUPP);
                return -1;
            }
            on_name(Kind::Truncate, (AT_FDCWD, path), &[length as u64], make)
        }

        /// ftruncate(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $by_file(fd: c_int, length: off_t) -> c_int {
            if let Some(done) = image_length(fd, length) {
                return done;
            }
            passes_by(fd);
            let make = || syscall!(SYS_ftruncate, fd, length);
            on_file(Kind::Truncate, fd, &[length as u64], make) as c_int
        }
    )*};
}

lengths! {
    truncate, ftruncate;
    truncate64, ftruncate64;
}

fn allocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    if passes_by(fd) {
        return -1;
    }
    let kind = if mode & SHIFTS != 0 { Kind::Shift } else { Kind::Allocate };
    let make = || syscall!(SYS_fallocate, fd, mode, offset, length);
    on_file(kind, fd, &[mode as u64, offset as u64, length as u64], make) as c_int
}

macro_rules! allocations {
    ($($name:ident, $posix:ident;)*) => {$(
        /// fallocate(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            mode: c_int,
            offset: off_t,
            length: off_t,
        ) -> c_int {
            allocate(fd, mode, offset, length)
        }

        /// posix_fallocate(3), on file systems that can allocate; others are filled by libc.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $posix(fd: c_int, offset: off_t, length: off_t) -> c_int {
            let errno = real::errno();
            if passes_by(fd) {
                real::set_errno(errno);
                return libc::EOPNOTSUPP; // libc would write the zeros unseen
            }
            let done = allocate(fd, 0, offset, length);
            let failed = real::errno();
            real::set_errno(errno); // this function leaves it alone, and returns it
            match done {
                0 => 0,
                // SAFETY: the caller's arguments, unchanged. What it writes is zeros where
                // nothing was: twice is as good as once.
                _ if failed == libc::EOPNOTSUPP => unsafe { real::$posix(fd, offset, length) },
                _ => failed,
            }
        }
    )*};
}

allocations! {
    fallocate, posix_fallocate;
    fallocate64, posix_fallocate64;
}
