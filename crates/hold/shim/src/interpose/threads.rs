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

extern "C-unwind" fn begin(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below made it with Box::into_raw for this thread alone.
    let beginning = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    tag::set(beginning.tag);
    (beginning.start)(beginning.argument)
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
    // SAFETY: the caller's arguments, but for what the thread runs: `begin`, with a value of its own.
    let failed = unsafe { real::pthread_create(thread, attributes, begin, beginning.cast()) };
    if failed != 0 {
        // SAFETY: no thread was started, so it is still ours.
        drop(unsafe { Box::from_raw(beginning) });
    }
    failed
}
