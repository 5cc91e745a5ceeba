//! What a thread that has used up its stack runs a signal handler on.
//!
//! Each thread that reads the device is given an alternate signal stack, unless it has one. It is
//! unmapped at the thread's end.

use std::cell::Cell;
use std::ptr::null_mut;

/// Enough for the handler and for the registers of any machine (AVX-512 and AMX take 11 KiB).
const BYTES: usize = 64 << 10;
/// In front of it, to be run into.
const GUARD: usize = 4 << 10;

thread_local! {
    static STACK: Stack = const { Stack(Cell::new(null_mut())) };
}

/// A thread's alternate stack: the start of its mapping, guard included, or null.
struct Stack(Cell<*mut libc::c_void>);

impl Drop for Stack {
    fn drop(&mut self) {
        let start = self.0.replace(null_mut());
        if start.is_null() {
            return;
        }
        if let Some(present) = current()
            && present.ss_sp == start.wrapping_byte_add(GUARD)
        {
            let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: a live structure; it is ours that is taken away, and this thread does not run
            // on it: destructors of thread-locals run on the thread's own stack.
            let failed = unsafe { libc::sigaltstack(&raw const none, null_mut()) } != 0;
            if failed {
                return; // in use after all: better lost than pulled away
            }
        }
        // SAFETY: the mapping made in `provide`, unmapped only here; the kernel does not use it any
        // more as this thread's alternate stack (just seen to).
        unsafe { libc::munmap(start, BYTES + GUARD) };
    }
}

/// The calling thread's alternate stack.
fn current() -> Option<libc::stack_t> {
    let mut present = libc::stack_t { ss_sp: null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: asks only, into a live structure.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut present) } == 0;
    asked.then_some(present)
}

/// Gives the calling thread an alternate stack. Without one (no memory) it runs handlers on its
/// own.
#[cold]
pub(super) fn provide() {
    if current().is_none_or(|present| present.ss_flags & libc::SS_DISABLE == 0) {
        return; // the daemon's own
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: a new mapping at a place of the kernel's choice; nothing is there yet.
    let start = unsafe { libc::mmap(null_mut(), BYTES + GUARD, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return;
    }
    let usable = start.wrapping_byte_add(GUARD);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: BYTES from there on are the rest of the mapping just made, which nobody else knows.
    let opened = unsafe { libc::mprotect(usable, BYTES, rights) } == 0;
    let new = libc::stack_t { ss_sp: usable, ss_flags: 0, ss_size: BYTES };
    // Its destructor is registered before it is in use.
    let kept = opened && STACK.try_with(|stack| stack.0.set(start)).is_ok();
    // SAFETY: a live structure that describes memory which stays mapped until this thread's
    // destructor takes it away again.
    let given = kept && unsafe { libc::sigaltstack(&raw const new, null_mut()) } == 0;
    if !given {
        let _ = STACK.try_with(|stack| stack.0.set(null_mut()));
        // SAFETY: the mapping made above; it is in nobody's use.
        unsafe { libc::munmap(start, BYTES + GUARD) };
    }
}
