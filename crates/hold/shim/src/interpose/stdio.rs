//! Streams of the C library's, which opens, reads, writes and closes them without the calls that
//! are seen here. An image must not be used so.

use crate::argument::Text;
use crate::effects::journal;
use crate::real;
use crate::renumbered;
use crate::shim::shim;
use libc::{FILE, c_char, c_int};
use rustix::fs::Stat;
use std::os::fd::BorrowedFd;

/// Whether a stream on that file is refused, with errno set.
fn refuses(stat: impl FnOnce() -> rustix::io::Result<Stat>, mode: Text<'_>) -> bool {
    let Some(shim) = shim() else { return false };
    let Some(mode) = mode.string() else { return false };
    let mode = mode.to_bytes();
    let Some(epoch) = shim.epoch() else {
        journal::stream(mode);
        return false;
    };
    let reads = mode.starts_with(b"r") && !mode.contains(&b'+');
    stat().is_ok_and(|stat| epoch.refuses_stream(&stat, reads))
}

fn by_name(path: Text<'_>) -> rustix::io::Result<Stat> {
    rustix::fs::stat(path.string().ok_or(rustix::io::Errno::FAULT)?)
}

fn by_number(fd: c_int) -> rustix::io::Result<Stat> {
    if fd < 0 {
        return Err(rustix::io::Errno::BADF);
    }
    // SAFETY: any number may be asked for; one that is not open gives an error.
    rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The stream was opened just now: its number may have been another's.
///
/// # Safety
/// `stream` is null, or an open stream.
unsafe fn opened(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: an open stream, by the caller's contract.
        renumbered::remove(unsafe { libc::fileno(stream) });
    }
    stream
}

macro_rules! opens {
    ($($name:ident;)*) => {$(
        /// fopen(3).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: fopen(3) takes two strings, which its caller leaves as they are until it
            // returns.
            let (name, how) = unsafe { Text::both(path, mode) };
            if refuses(|| by_name(name), how) {
                return std::ptr::null_mut();
            }
            // SAFETY: the caller's arguments, unchanged.
            let stream = unsafe { real::$name(path, mode) };
            // SAFETY: null, or opened just now.
            unsafe { opened(stream) }
        }
    )*};
}

opens! {
    fopen;
    fopen64;
}

macro_rules! reopens {
    ($($name:ident;)*) => {$(
        /// freopen(3).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            path: *const c_char,
            mode: *const c_char,
            stream: *mut FILE,
        ) -> *mut FILE {
            // SAFETY: freopen(3) takes two strings, of which the path may be null, and which its
            // caller leaves as they are until it returns.
            let (name, how) = unsafe { Text::both(path, mode) };
            if refuses(|| by_name(name), how) {
                // SAFETY: the caller's stream, which freopen closes also where it fails.
                unsafe { fclose(stream) };
                real::set_errno(libc::EOPNOTSUPP);
                return std::ptr::null_mut();
            }
            // SAFETY: the caller's arguments, unchanged.
            let stream = unsafe { real::$name(path, mode, stream) };
            // SAFETY: null, or opened just now.
            unsafe { opened(stream) }
        }
    )*};
}

reopens! {
    freopen;
    freopen64;
}

/// fdopen(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: fdopen(3) takes a string, which its caller leaves as it is until it returns.
    let how = unsafe { Text::new(mode) };
    if refuses(|| by_number(fd), how) {
        return std::ptr::null_mut();
    }
    crate::positions::hand_back(fd); // libc asks the kernel
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::fdopen(fd, mode) }
}

/// fclose(3), which closes without the `close` that is seen here.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    if !stream.is_null() {
        // SAFETY: the caller's stream, which is open until it is closed below.
        renumbered::remove(unsafe { libc::fileno(stream) });
    }
    // SAFETY: the caller's argument, unchanged.
    unsafe { real::fclose(stream) }
}
