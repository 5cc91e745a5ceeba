//! Calls that give a descriptor's number another meaning: what is known of it is forgotten. (open and
//! close are in `open`.)

use crate::descriptors;
use crate::real;
use crate::renumbered;
use crate::shim::shim;
use libc::{c_int, c_long, c_uint};

/// dup(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(from: c_int) -> c_int {
    // SAFETY: the caller's argument, unchanged.
    let to = unsafe { belay_sys::raw::syscall(libc::SYS_dup, from) as c_int };
    if to >= 0 {
        renumbered::duplicate(from, to);
    }
    to
}

/// dup2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    renumber(from, to, || unsafe { real::dup2(from, to) })
}

/// dup3(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    renumber(from, to, || unsafe { real::dup3(from, to, flags) })
}

/// `make` makes `to` a duplicate of `from`, or fails, and then `to` is what it was.
fn renumber(from: c_int, to: c_int, make: impl FnOnce() -> c_int) -> c_int {
    let done = make();
    if done >= 0 && from != to {
        renumbered::duplicate(from, to);
    }
    done
}

/// close_range(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With that flag, they are closed at an exec only.
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 && first <= last {
        renumbered::remove_range(first, last);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { belay_sys::raw::syscall(libc::SYS_close_range, first, last, flags) as c_int }
}

macro_rules! controls {
    ($($name:ident;)*) => {$(
        /// fcntl(2): F_SETFL changes O_APPEND.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, argument: c_long) -> c_int {
            if command == libc::F_SETFL {
                descriptors::forget_sink(fd);
            }
            // SAFETY: the caller's arguments, unchanged. In C the last is variadic: it lies where
            // an argument of this type lies, and is not looked at by commands that have none.
            let done = unsafe { real::$name(fd, command, argument) };
            if command == libc::F_SETFL
                && done >= 0
                && descriptors::is_device(fd)
                && let Some(shim) = shim()
            {
                shim.waiting.set_nonblocking(argument & c_long::from(libc::O_NONBLOCK) != 0);
            }
            if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && done >= 0 {
                renumbered::duplicate(fd, done);
            }
            done
        }
    )*};
}

controls! {
    fcntl;
    fcntl64;
}
