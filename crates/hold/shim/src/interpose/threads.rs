//! pthread_create: a thread that is started for a request works on that request.

use crate::effects::journal;
use crate::effects::tag::{self, Tag};
use crate::real::{self, Start};
use crate::shim::policy;
use libc::{c_int, c_void, pthread_attr_t, pthread_t};

/// What a new thread needs of the one that starts it.
struct Beginning {
    start: Start,
    argument: *mut c_void,
    tag: Tag,
}

/// What a thread runs that `pthread_create` below has started.
///
/// # Safety
/// `beginning` is a [`Beginning`] from [`Box::into_raw`] that is nobody else's; what it is to run
/// may be run with its argument.
unsafe extern "C-unwind" fn begin(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract.
    let beginning = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    tag::set(beginning.tag);
    // SAFETY: the same.
    unsafe { (beginning.start)(beginning.argument) }
}

/// pthread_create(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !policy().is_journal() || tag::get().unique == 0 {
        journal::left(); // by that thread, for all that is known
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pthread_create(thread, attributes, start, argument) };
    }
    let beginning = Box::into_raw(Box::new(Beginning { start, argument, tag: tag::hand_over() }));
    // SAFETY: the caller's arguments, but for what the thread runs: `begin`, with a value of its
    // own, and the caller's function and argument in it.
    let failed = unsafe { real::pthread_create(thread, attributes, begin, beginning.cast()) };
    if failed != 0 {
        // SAFETY: no thread was started, so it is still ours.
        drop(unsafe { Box::from_raw(beginning) });
    }
    failed
}
