//! epoll: in the daemon's sets the bell is in the device's place.

use crate::descriptors::{is_device, is_set};
use crate::real;
use crate::shim::{now, shim};
use libc::{c_int, epoll_event, sigset_t, timespec};

/// epoll_ctl(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if is_device(fd)
        && let Some(shim) = shim()
    {
        // SAFETY: null, or an event of the caller's, readable during the call.
        let event = unsafe { event.as_ref() }.map(|event| (event.events, event.u64));
        return shim.set_control(set, op, fd, event);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::epoll_ctl(set, op, fd, event) }
}

/// Waits with `wait`, which is given the milliseconds that are left (-1: for ever), until there is
/// something for the daemon.
///
/// # Safety
/// What `wait` gives is below 1, or so many events lie at `events` then, which are the calling
/// thread's alone.
unsafe fn wait_here(
    set: c_int,
    events: *mut epoll_event,
    end: Option<u64>,
    wait: impl Fn(Option<u64>) -> c_int,
) -> c_int {
    loop {
        let n = wait(end.map(|end| end.saturating_sub(now())));
        let (Ok(count), Some(shim)) = (usize::try_from(n), shim()) else { return n };
        if count == 0 {
            return n;
        }
        // SAFETY: so many events lie there, by the caller's contract.
        let told = unsafe { std::slice::from_raw_parts_mut(events, count) };
        let Some(left) = shim.set_told(set, told) else {
            return real::fail(libc::EINTR) as c_int;
        };
        if left > 0 || end.is_some_and(|end| now() >= end) {
            return left as c_int;
        }
    }
}

/// A time in milliseconds, negative for ever, as the instant at which it is over.
fn end_of(timeout: c_int) -> Option<u64> {
    u64::try_from(timeout).ok().map(|ms| now().saturating_add(ms.saturating_mul(1_000_000)))
}

/// Rounded up, so that nobody waits for less than was asked for.
fn in_ms(left: Option<u64>) -> c_int {
    left.map_or(-1, |ns| c_int::try_from(ns.div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

/// epoll_wait(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    if !is_set(set) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::epoll_wait(set, events, most, timeout) };
    }
    let wait = |left: Option<u64>| {
        // SAFETY: the caller's arguments, but for the time.
        unsafe { real::epoll_wait(set, events, most, in_ms(left)) }
    };
    // SAFETY: the kernel writes as many events there as it gives, which are the caller's alone
    // until this call returns.
    unsafe { wait_here(set, events, end_of(timeout), wait) }
}

/// epoll_pwait(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    if !is_set(set) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::epoll_pwait(set, events, most, timeout, mask) };
    }
    let wait = |left: Option<u64>| {
        // SAFETY: the caller's arguments, but for the time.
        unsafe { real::epoll_pwait(set, events, most, in_ms(left), mask) }
    };
    // SAFETY: the kernel writes as many events there as it gives, which are the caller's alone
    // until this call returns.
    unsafe { wait_here(set, events, end_of(timeout), wait) }
}

/// epoll_pwait2(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !is_set(set) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::epoll_pwait2(set, events, most, timeout, mask) };
    }
    // SAFETY: null, or a time that is readable during the call.
    let end = unsafe { timeout.as_ref() }.map(|time| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
        now().saturating_add(seconds).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    });
    let wait = |left: Option<u64>| {
        let time = left.map(|ns| timespec {
            tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the caller's arguments, but for the time, which lives or is null.
        unsafe { real::epoll_pwait2(set, events, most, time, mask) }
    };
    // SAFETY: the kernel writes as many events there as it gives, which are the caller's alone
    // until this call returns.
    unsafe { wait_here(set, events, end, wait) }
}
