//! Streams of the C library's, which opens, reads, writes and closes them without the calls that are seen here. An image
//! must not be used so.

use crate::effects::journal;
use crate::real;
use crate::renumbered;
use crate::shim::shim;
use libc::{FILE, c_char, c_int};
use rustix::fs::Stat;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// Whether a stream on that file is refused, with errno set.
fn refuses(stat: impl FnOnce() -> rustix::io::Result<Stat>, mode: *const c_char) -> bool {
    let (Some(shim), false) = (shim(), mode.is_null()) else {
        return false;
    };
    // SAFETY: the mode of a stream is a C string, readable during the call.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let Some(epoch) = shim.epoch() else {
        journal::stream(mode);
        return false;
    };
    let reads = mode.starts_with(b"r") && !mode.contains(&b'+');
    stat().is_ok_and(|stat| epoch.refuses_stream(&stat, reads))
}

fn by_name(path: *const c_char) -> rustix::io::Result<Stat> {
    if path.is_null() {
        return Err(rustix::io::Errno::FAULT);
    }
    // SAFETY: a C string that is readable during the call, by fopen's contract.
    rustix::fs::stat(unsafe { CStr::from_ptr(path) })
}

fn by_number(fd: c_int) -> rustix::io::Result<Stat> {
    if fd < 0 {
        return Err(rustix::io::Errno::BADF);
    }
    // SAFETY: any number may be asked for; one that is not open gives an error.
    rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The stream was opened just now: its number may have been another's.
fn opened(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the stream is open, and the calling thread is the first to have it.
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
            if refuses(|| by_name(path), mode) {
                return std::ptr::null_mut();
            }
            // SAFETY: the caller's arguments, unchanged.
            opened(unsafe { real::$name(path, mode) })
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
            if refuses(|| by_name(path), mode) {
                // SAFETY: the caller's stream, which freopen closes also where it fails.
                unsafe { fclose(stream) };
                real::set_errno(libc::EOPNOTSUPP);
                return std::ptr::null_mut();
            }
            // SAFETY: the caller's arguments, unchanged.
            opened(unsafe { real::$name(path, mode, stream) })
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
    if refuses(|| by_number(fd), mode) {
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
