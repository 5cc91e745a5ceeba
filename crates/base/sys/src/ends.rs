//! The end of this process by a signal, and signals on their way to a traced one.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Ends this process as `signal` does, without a core of its own, whatever it has set for that
/// signal. Past the C library: whoever stands in front of it takes what goes through it for a
/// signal that this process sends itself. If the signal does not end it, it ends with 128 and the
/// signal's number.
pub fn end_by(signal: i32) -> ! {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // SAFETY: the default action, which is no function; past the library, as above.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // The kernel's structure begins with the handler and is shorter; all of it is zero.
    // SAFETY: a live structure, and the size of the kernel's set of signals.
    unsafe {
        crate::raw::syscall(
            libc::SYS_rt_sigaction,
            signal,
            &raw const default,
            std::ptr::null::<u8>(),
            8_usize,
        )
    };
    let bit = u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0);
    let _ = crate::signals::set_mask(!bit);
    let (me, thread) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get());
    // SAFETY: numbers only: this very thread.
    unsafe { crate::raw::syscall(libc::SYS_tgkill, me, thread, signal) };
    // SAFETY: ends the process at once; nothing in it is to be finished.
    unsafe { libc::_exit(128 + signal) }
}

/// Has this process end by faults, and by signals that look like them. Until then Rust's runtime
/// has handlers for them, which take the first one that somebody sends for nothing.
pub fn end_by_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action, which is no function. What is taken away only words the
        // report of a stack that overflows.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// How far a thread that is traced goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// To the begin or end of its next system call.
    ToNextCall,
    /// It is not traced any more.
    Free,
}

/// Has a thread that this one traces, and that has stopped, go on, with that signal if it is not 0:
/// any of the kernel's. It may have ended meanwhile.
pub fn go_on(thread: i32, how: GoesOn, signal: i32) {
    let request = match how {
        GoesOn::ToNextCall => libc::PTRACE_SYSCALL,
        GoesOn::Free => libc::PTRACE_DETACH,
    };
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests read and write no memory of this process.
    unsafe { libc::ptrace(request, thread, nowhere, libc::c_long::from(signal)) };
}
