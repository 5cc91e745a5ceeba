//! Signals that a daemon sends to itself: of SIGKILL and the like nobody could tell afterwards who
//! sent them, and a request is to be blamed for what its daemon does, and not for what others do.
//!
//! Handlers of signals may call these functions: no locks here, nothing is looked up.

use crate::shim::shim;
use belay_recorder::control::Lease;
use libc::{c_int, pid_t};

/// The daemon is about to send `signal` to itself.
fn note(signal: c_int) {
    let Some(shim) = shim() else { return };
    // Not a child of the daemon's, which has the same memory.
    let own = Lease { generation: shim.host.generation(), pid: std::process::id() };
    if shim.control().lease() == own {
        shim.control().set_own_signal(shim.host.generation(), signal);
    }
}

/// kill(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn kill(pid: pid_t, signal: c_int) -> c_int {
    // 0 is the group of the caller, which it is in.
    if signal > 0 && (pid == 0 || u32::try_from(pid) == Ok(std::process::id())) {
        note(signal);
    }
    // SAFETY: the caller's arguments, unchanged; kill(2) takes numbers only.
    unsafe { belay_sys::raw::syscall(libc::SYS_kill, pid, signal) as c_int }
}

/// raise(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn raise(signal: c_int) -> c_int {
    if signal > 0 {
        note(signal);
    }
    // SAFETY: gettid(2) takes nothing and cannot fail.
    let thread = unsafe { belay_sys::raw::syscall(libc::SYS_gettid) };
    // SAFETY: numbers only: the calling thread, and the caller's argument.
    unsafe {
        belay_sys::raw::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) as c_int
    }
}
