//! What the daemon takes for the time: in a request, the instant in which it got the request, also
//! when that is reissued. So the times that files have after a crash are those that
//! applications have seen before.

use crate::real;
use crate::shim::policy;
use libc::{c_int, c_void, clockid_t, time_t, timespec, timeval};
use std::cell::Cell;

const SECOND: u64 = 1_000_000_000;

thread_local! {
    /// CLOCK_REALTIME in nanoseconds for the calling thread; 0: as it is.
    static FROZEN: Cell<u64> = const { Cell::new(0) };
}

/// CLOCK_REALTIME in nanoseconds, as it is.
pub(crate) fn real() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (now.tv_sec as u64).wrapping_mul(SECOND).wrapping_add(now.tv_nsec as u64)
}

/// For the calling thread it is `time` from now on.
pub(crate) fn freeze(time: u64) {
    FROZEN.set(time);
}

/// And goes on again.
#[inline]
pub(crate) fn thaw() {
    FROZEN.set(0);
}

/// The time that stands still for the calling thread: seconds, nanoseconds.
#[inline]
fn frozen() -> Option<(time_t, i64)> {
    if !policy().is_epoch() {
        return None;
    }
    let time = FROZEN.get();
    (time != 0).then_some(((time / SECOND) as time_t, (time % SECOND) as i64))
}

/// clock_gettime(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    if matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE)
        && let Some((tv_sec, tv_nsec)) = frozen()
        && !out.is_null()
    {
        // SAFETY: the caller's structure, which this function is to fill.
        unsafe { out.write(timespec { tv_sec, tv_nsec }) };
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::clock_gettime(clock, out) }
}

/// gettimeofday(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gettimeofday(out: *mut timeval, zone: *mut c_void) -> c_int {
    if let Some((tv_sec, nanos)) = frozen()
        && !out.is_null()
    {
        // SAFETY: the caller's structure, which this function is to fill.
        unsafe { out.write(timeval { tv_sec, tv_usec: nanos / 1000 }) };
        return 0;
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::gettimeofday(out, zone) }
}

/// time(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn time(out: *mut time_t) -> time_t {
    let Some((seconds, _)) = frozen() else {
        // SAFETY: the caller's argument, unchanged.
        return unsafe { real::time(out) };
    };
    if !out.is_null() {
        // SAFETY: the caller's place, which this function is to fill.
        unsafe { out.write(seconds) };
    }
    seconds
}
