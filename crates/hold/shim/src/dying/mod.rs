//! The death of the daemon by its own signal, made orderly.
//!
//! When one thread of a process crashes, the kernel ends all of them, in the middle of whatever they
//! do. What an effectful system call did is then known to nobody, if it was made and its result is
//! not yet on record. Re-FUSE has the kernel let such calls finish (section 4.2.3, non-interruptible
//! system calls). Here the crashing thread sees to it itself, in the handler of its signal:
//!
//! 1. the other threads are stopped, so that they run no more of the daemon's code; those inside an
//!    effectful call finish it, record its result, and stop then;
//! 2. what the crash looks like is put on record for the report ([`remains`]);
//! 3. it waits for those calls, for a second at most, and dies by the signal that it had.
//!
//! | module | answers |
//! | --- | --- |
//! | [`calls`] | which threads are inside an effectful call |
//! | [`handler`] | what is done at a deadly signal |
//! | [`others`] | how the other threads are stopped |
//! | [`remains`] | what is put on record |
//! | [`stack`] | what a thread that has used up its stack runs the handler on |
//!
//! Without a policy that records effects only the second is done. A daemon that handles a signal
//! itself is not interfered with.
//!
//! Everything from the handler on is async-signal-safe: system calls, atomics and thread-locals
//! without destructors; nothing is allocated and no lock is taken.

pub(crate) mod calls;
mod handler;
mod others;
mod remains;
mod stack;

pub(crate) use calls::in_call;
pub(crate) use handler::install;

use crate::shim::policy;
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The thread because of whose crash the others are to stop; 0 while all is well.
static DYING: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static PREPARED: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread comes to where it could make something known. If the daemon is dying it stops
/// here.
#[inline]
pub(crate) fn checkpoint() {
    if DYING.load(Relaxed) != 0 {
        handler::stop_here();
    }
}

/// The calling thread reads the device: it works on requests, and has to be able to die of them.
#[inline]
pub(crate) fn prepare_thread() {
    if !PREPARED.get() {
        PREPARED.set(true);
        stack::provide();
        if policy().records() {
            calls::take_place();
        }
    }
    checkpoint();
}

/// The calling thread's id, from the kernel.
fn thread_id() -> i32 {
    // SAFETY: gettid(2) takes nothing and cannot fail.
    unsafe { belay_sys::raw::syscall(libc::SYS_gettid) as i32 }
}

/// This process's id, from the kernel: a child that was forked is not taken for its parent.
fn process_id() -> i32 {
    // SAFETY: getpid(2) takes nothing and cannot fail.
    unsafe { belay_sys::raw::syscall(libc::SYS_getpid) as i32 }
}

/// Sleeps for `nanoseconds`, less than a second.
fn sleep(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let rest: *mut libc::timespec = std::ptr::null_mut();
    // SAFETY: nanosleep(2) with a live structure; nobody wants to know the rest.
    unsafe { belay_sys::raw::syscall(libc::SYS_nanosleep, &raw const time, rest) };
}

/// CLOCK_MONOTONIC, in nanoseconds.
fn now() -> u64 {
    crate::shim::now()
}
