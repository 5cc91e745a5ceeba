//! Which threads are inside an effectful call.
//!
//! Each thread that makes such calls has an entry in a table, which only it writes to while it
//! lives: so that entering and leaving a call is a store each, and the crashing thread can look at
//! all of them. Threads beyond the table's size are not waited for.

use super::raw::thread_id;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence};

/// Threads that make effectful calls at one time.
const ENTRIES: usize = 1024;
const NONE: usize = usize::MAX;

/// On a cache line of its own.
#[repr(align(64))]
struct ThreadEntry {
    /// The thread that has it; 0 for none.
    owner: AtomicI32,
    /// That thread is inside a call.
    inside: AtomicBool,
}

static TABLE: [ThreadEntry; ENTRIES] =
    [const { ThreadEntry { owner: AtomicI32::new(0), inside: AtomicBool::new(false) } }; ENTRIES];
/// Entries from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(NONE) };
    static GUARD: Guard = const { Guard };
}

/// Gives the entry back when its thread ends.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(entry) = TABLE.get(MINE.replace(NONE)) {
            entry.inside.store(false, Ordering::Release);
            entry.owner.store(0, Ordering::Release);
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
        Some(entry) => entry.inside.store(inside, Ordering::Release),
        None if inside => {
            take_entry();
            if let Some(entry) = TABLE.get(MINE.get()) {
                entry.inside.store(true, Ordering::Release);
            }
        }
        None => {}
    }
    compiler_fence(Ordering::SeqCst);
}

/// Gives the calling thread an entry, if there is one.
#[cold]
pub(super) fn take_entry() {
    // It is given back by a destructor: a thread that is past its destructors has none.
    if GUARD.try_with(|_| ()).is_err() {
        return;
    }
    let me = thread_id();
    for (index, entry) in TABLE.iter().enumerate() {
        let free = entry.owner.load(Ordering::Relaxed) == 0;
        if free && entry.owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            USED.fetch_max(index + 1, Ordering::AcqRel);
            MINE.set(index);
            return;
        }
    }
}

fn used() -> &'static [ThreadEntry] {
    TABLE.get(..USED.load(Ordering::Acquire)).unwrap_or(&[])
}

/// Whether the calling thread is inside a call. Safe in a signal handler.
pub(super) fn am_inside() -> bool {
    TABLE.get(MINE.get()).is_some_and(|entry| entry.inside.load(Ordering::Acquire))
}

/// The calling thread, if it is inside a call, will not come back from it.
pub(super) fn give_up() {
    if let Some(entry) = TABLE.get(MINE.get()) {
        entry.inside.store(false, Ordering::Release);
    }
}

/// Whether `thread` is inside a call.
pub(super) fn is_inside(thread: i32) -> bool {
    used().iter().any(|entry| {
        entry.owner.load(Ordering::Acquire) == thread && entry.inside.load(Ordering::Acquire)
    })
}

/// Whether any thread is.
pub(super) fn any_inside() -> bool {
    used().iter().any(|entry| {
        entry.owner.load(Ordering::Acquire) != 0 && entry.inside.load(Ordering::Acquire)
    })
}
