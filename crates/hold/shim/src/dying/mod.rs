//! The death of the daemon by its own signal, made orderly.
//!
//! When one thread of a process crashes, the kernel ends all of them, in the middle of whatever
//! they do. What an effectful system call did is then known to nobody, if it was made and its
//! result is not yet on record. Re-FUSE has the kernel let such calls finish (section 4.2.3,
//! non-interruptible system calls). Here the crashing thread sees to it itself, in the handler of
//! its signal:
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
//! | [`raw`] | what may be asked of the kernel meanwhile |
//! | [`stack`] | what a thread that has used up its stack runs the handler on |
//!
//! Without a policy that records effects only the second is done. A daemon that handles a signal
//! itself is not interfered with.
//!
//! The crate crash-handler runs a function at such a signal, too. It is not used: it is made for a
//! program that wants to see its own crashes, and hooks `pthread_create` for them, while this is a
//! guest in somebody else's program, whose handlers come first, and has to stop the other threads.
//!
//! Everything from the handler on is async-signal-safe: system calls, atomics and thread-locals
//! without destructors; nothing is allocated and no lock is taken.

mod calls;
mod handler;
mod others;
mod raw;
mod remains;
mod stack;

pub(crate) use handler::{install, safepoint};

use crate::shim::policy;
use std::cell::Cell;

thread_local! {
    static PREPARED: Cell<bool> = const { Cell::new(false) };
}

/// Makes an effectful call and records what came of it, both in `make`. If the daemon is dying when
/// that is done, the calling thread stops.
#[inline]
pub(crate) fn in_call<T>(make: impl FnOnce() -> T) -> T {
    calls::set_inside(true);
    let made = make();
    calls::set_inside(false);
    safepoint();
    made
}

/// The calling thread reads the device: it works on requests, and has to be able to die of them.
#[inline]
pub(crate) fn prepare_thread() {
    if !PREPARED.get() {
        PREPARED.set(true);
        stack::provide();
        if policy().records() {
            calls::take_entry();
        }
    }
    safepoint();
}
