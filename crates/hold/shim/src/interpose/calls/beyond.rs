//! Calls that a journal cannot hold: files whose names are drawn at random or that have none, and
//! processes. A changing request that makes one is reconciled.

use crate::effects::journal::{beyond, drawn, left};
use crate::positions;
use crate::real;
use libc::{FILE, c_char, c_int, c_uint, pid_t};
use std::ffi::CStr;

macro_rules! passed_on {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $(, after $($before:path),+)?;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            beyond();
            $($($before();)+)?
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name($($arg),*) }
        }
    )*};
}

/// Draws a name at random, by `make`, into `template`.
///
/// # Safety
/// When `make` has not failed, a NUL-terminated string begins at `template` that can be read, and
/// that nobody else writes to.
unsafe fn draw<T>(
    template: *mut c_char,
    make: impl FnOnce() -> T,
    failed: impl Fn(&T) -> bool,
) -> T {
    beyond();
    let made = make();
    // SAFETY: it has not failed, so this is a string, by the caller's contract.
    if !failed(&made) && !drawn(unsafe { CStr::from_ptr(template) }) {
        left();
    }
    made
}

macro_rules! drawn_files {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(template: *mut c_char, $($arg: $ty),*) -> c_int {
            // SAFETY: the caller's arguments, unchanged.
            let make = || unsafe { real::$name(template, $($arg),*) };
            // SAFETY: it fills in its caller's string, which is the caller's alone until this call
            // returns.
            unsafe { draw(template, make, |fd| *fd < 0) }
        }
    )*};
}

drawn_files! {
    /// mkstemp(3).
    mkstemp();
    /// mkstemp(3).
    mkstemp64();
    /// mkostemp(3).
    mkostemp(flags: c_int);
    /// mkostemp(3).
    mkostemp64(flags: c_int);
    /// mkstemps(3).
    mkstemps(suffix: c_int);
    /// mkostemps(3).
    mkostemps(suffix: c_int, flags: c_int);
}

/// mkdtemp(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's arguments, unchanged.
    let make = || unsafe { real::mkdtemp(template) };
    // SAFETY: it fills in its caller's string, which is the caller's alone until this call returns.
    unsafe { draw(template, make, |path| path.is_null()) }
}

passed_on! {
    /// tmpfile(3).
    tmpfile() -> *mut FILE;
    /// memfd_create(2).
    memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    /// fork(2).
    fork() -> pid_t, after left, positions::hand_all_back;
    /// system(3).
    system(command: *const c_char) -> c_int, after left, positions::hand_all_back;
    /// popen(3).
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE, after left, positions::hand_all_back;
}

/// The same before vfork(2). Where that is.
extern "C" fn before_vfork() -> usize {
    beyond();
    left();
    positions::hand_all_back();
    real::vfork_address()
}

/// vfork(2): its child comes back first, into this stack, so there must be no frame of this
/// function by then.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        "endbr64",
        "sub rsp, 8", // calls are made from multiples of 16
        "call {before}",
        "add rsp, 8",
        "jmp rax",
        before = sym before_vfork,
    )
}

/// The same.
///
/// # Safety
/// As libc's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    core::arch::naked_asm!(
        "hint #34", // where calls by address may lead (bti c)
        "stp x29, x30, [sp, #-16]!",
        "bl {before}",
        "ldp x29, x30, [sp], #16",
        "mov x16, x0",
        "br x16",
        before = sym before_vfork,
    )
}
