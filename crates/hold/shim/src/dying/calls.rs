//! Which threads are inside an effectful call.
//!
//! Each thread that makes such calls has a place in a table, which only it writes to while it lives:
//! so that entering and leaving a call is a store each, and the crashing thread can look at all of
//! them. Threads beyond the table's size are not waited for.

use super::raw::thread_id;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence};

/// Threads that make effectful calls at one time.
const PLACES: usize = 1024;
const NONE: usize = usize::MAX;

/// On a cache line of its own.
#[repr(align(64))]
struct Place {
    /// The thread that has it; 0 for none.
    owner: AtomicI32,
    /// That thread is inside a call.
    inside: AtomicBool,
}

static TABLE: [Place; PLACES] =
    [const { Place { owner: AtomicI32::new(0), inside: AtomicBool::new(false) } }; PLACES];
/// Places from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(NONE) };
    static GUARD: Guard = const { Guard };
}

/// Gives the place back when its thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(place) = TABLE.get(MINE.replace(NONE)) {
            place.inside.store(false, Ordering::Release);
            place.owner.store(0, Ordering::Release);
        }
    }
}

/// Says that the calling thread is inside a call, or no more.
#[inline]
pub(super) fn set_inside(inside: bool) {
    // The fences keep the call between the two stores as far as this very thread sees it, and so as
    // far as a signal handler sees it that interrupts this thread.
    compiler_fence(Ordering::SeqCst);
    match TABLE.get(MINE.get()) {
        Some(place) => place.inside.store(inside, Ordering::Release),
        None if inside => {
            take_place();
            if let Some(place) = TABLE.get(MINE.get()) {
                place.inside.store(true, Ordering::Release);
            }
        }
        None => {}
    }
    compiler_fence(Ordering::SeqCst);
}

/// Gives the calling thread a place, if there is one.
#[cold]
pub(super) fn take_place() {
    // It is given back by a destructor: a thread that is past its destructors has none.
    if GUARD.try_with(|_| ()).is_err() {
        return;
    }
    let me = thread_id();
    for (index, place) in TABLE.iter().enumerate() {
        let free = place.owner.load(Ordering::Relaxed) == 0;
        if free && place.owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            USED.fetch_max(index + 1, Ordering::AcqRel);
            MINE.set(index);
            return;
        }
    }
}

fn used() -> &'static [Place] {
    TABLE.get(..USED.load(Ordering::Acquire)).unwrap_or(&[])
}

/// Whether the calling thread is inside a call. Safe in a signal handler.
pub(super) fn am_inside() -> bool {
    TABLE.get(MINE.get()).is_some_and(|place| place.inside.load(Ordering::Acquire))
}

/// The calling thread, if it is inside a call, will not come back from it.
pub(super) fn give_up() {
    if let Some(place) = TABLE.get(MINE.get()) {
        place.inside.store(false, Ordering::Release);
    }
}

/// Whether `thread` is inside a call.
pub(super) fn is_inside(thread: i32) -> bool {
    used().iter().any(|place| {
        place.owner.load(Ordering::Acquire) == thread && place.inside.load(Ordering::Acquire)
    })
}

/// Whether any thread is.
pub(super) fn any_inside() -> bool {
    used().iter().any(|place| {
        place.owner.load(Ordering::Acquire) != 0 && place.inside.load(Ordering::Acquire)
    })
}
