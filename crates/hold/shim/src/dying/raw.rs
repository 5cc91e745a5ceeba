//! What the dying may ask of the kernel: calls that are async-signal-safe.

/// The calling thread's id, from the kernel.
pub(super) fn thread_id() -> i32 {
    // SAFETY: gettid(2) takes nothing and cannot fail.
    unsafe { belay_sys::raw::syscall(libc::SYS_gettid) as i32 }
}

/// This process's id, from the kernel: a child that was forked is not taken for its parent.
pub(super) fn process_id() -> i32 {
    // SAFETY: getpid(2) takes nothing and cannot fail.
    unsafe { belay_sys::raw::syscall(libc::SYS_getpid) as i32 }
}

/// Sleeps for `nanoseconds`, less than a second.
pub(super) fn sleep(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let rest: *mut libc::timespec = std::ptr::null_mut();
    // SAFETY: nanosleep(2) with a live structure; nobody wants to know the rest.
    unsafe { belay_sys::raw::syscall(libc::SYS_nanosleep, &raw const time, rest) };
}

/// CLOCK_MONOTONIC, in nanoseconds.
pub(super) fn now() -> u64 {
    crate::shim::now()
}
