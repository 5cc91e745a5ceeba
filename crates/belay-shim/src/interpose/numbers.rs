//! Calls that give a descriptor's number another meaning: what is known of it is forgotten. (open and
//! close are in `open`.)

use crate::descriptors;
use crate::real;
use libc::{FILE, c_int, c_long, c_uint};

/// dup2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        descriptors::duplicate(from, to);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::dup2(from, to) }
}

/// dup3(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    descriptors::duplicate(from, to);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::dup3(from, to, flags) }
}

/// fclose(3), which closes without the `close` that is seen here.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: the caller's stream, which is open until it is closed below.
        descriptors::forget_sink(unsafe { libc::fileno(stream) });
    }
    // SAFETY: the caller's argument, unchanged.
    unsafe { real::fclose(stream) }
}

/// close_range(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    descriptors::forget_sinks(first, last);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
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
            unsafe { real::$name(fd, command, argument) }
        }
    )*};
}

controls! {
    fcntl;
    fcntl64;
}
