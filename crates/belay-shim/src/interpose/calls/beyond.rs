//! Calls that a journal cannot hold: files whose names are drawn at random or that have none, and
//! processes. A changing request that makes one is reconciled.

use crate::effects::journal::beyond;
use crate::positions;
use crate::real;
use libc::{FILE, c_char, c_int, c_uint, pid_t};

macro_rules! passed_on {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $(, after $before:path)?;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            beyond();
            $($before();)?
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name($($arg),*) }
        }
    )*};
}

passed_on! {
    /// mkstemp(3).
    mkstemp(template: *mut c_char) -> c_int;
    /// mkstemp(3).
    mkstemp64(template: *mut c_char) -> c_int;
    /// mkostemp(3).
    mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    /// mkostemp(3).
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    /// mkstemps(3).
    mkstemps(template: *mut c_char, suffix: c_int) -> c_int;
    /// mkostemps(3).
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    /// mkdtemp(3).
    mkdtemp(template: *mut c_char) -> *mut c_char;
    /// tmpfile(3).
    tmpfile() -> *mut FILE;
    /// memfd_create(2).
    memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    /// fork(2).
    fork() -> pid_t, after positions::hand_all_back;
    /// system(3).
    system(command: *const c_char) -> c_int, after positions::hand_all_back;
    /// popen(3).
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE, after positions::hand_all_back;
}

/// The same before vfork(2). Where that is.
extern "C" fn before_vfork() -> usize {
    beyond();
    positions::hand_all_back();
    real::vfork_address()
}

/// vfork(2): its child comes back first, into this stack, so there must be no frame of this function by then.
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
