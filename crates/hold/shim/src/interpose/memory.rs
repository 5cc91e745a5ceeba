//! mlockall: belay's shared memory is not to be filled for it.

use crate::shim::shim;
use libc::c_int;

/// mlockall(2): pages are locked when they are first used, not all at once. Belay's shared memory
/// is large and mostly never used: what locks all of it fills it, too, and that is more than a
/// mount may take.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    let flags = if shim().is_some() { flags | libc::MCL_ONFAULT } else { flags };
    // SAFETY: a number; no memory changes by it.
    unsafe { belay_sys::raw::syscall(libc::SYS_mlockall, flags) as c_int }
}
