//! Calls that give a descriptor's number another meaning: what is known of it is forgotten. (open
//! and close are in `open`.)

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
    if descriptors::is_reserved(to) {
        return real::fail(libc::EBADF) as c_int; // as a number that is too high
    }
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
    let range = |first: c_uint, last: c_uint| {
        // SAFETY: descriptors of the caller's, as it wants it.
        unsafe { belay_sys::raw::syscall(libc::SYS_close_range, first, last, flags) as c_int }
    };
    // With that flag, they are closed at an exec only.
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 || first > last {
        return range(first, last);
    }
    let mut done = 0;
    for (first, last) in descriptors::unreserved(first, last) {
        renumbered::remove_range(first, last);
        done = range(first, last);
        if done < 0 {
            break;
        }
    }
    done
}

/// closefrom(3): libc's own would pass the above by.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the caller's argument; a negative one is 0 there.
    if unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) } < 0 {
        // A kernel before 5.9.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let end = limit.and_then(|limit| c_int::try_from(limit).ok()).unwrap_or(65_536);
        for fd in first.max(0)..end {
            // SAFETY: the caller wants them closed.
            unsafe { super::open::close(fd) };
        }
    }
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
