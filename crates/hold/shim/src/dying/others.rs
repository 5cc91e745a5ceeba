//! How the other threads are stopped: by a signal that the daemon does not use, whose handler does
//! not return, but for threads inside an effectful call. Those finish it and stop at its end.

use super::calls;
use super::raw::{now, process_id, sleep, thread_id};
use libc::c_int;
use std::mem::{offset_of, zeroed};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long threads may take to hear the signal: those that do not, do something that cannot be
/// interrupted, or have closed their ears.
const HEARING: u64 = 5_000_000;

/// Threads whose handler has run.
static HEARD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn stopped(_signal: c_int) {
    HEARD.fetch_add(1, Ordering::AcqRel);
    if !calls::am_inside() {
        park();
    }
}

/// Stays here until the process ends, and hears nothing any more.
pub(super) fn park() -> ! {
    let all = u64::MAX;
    let old: *mut u64 = std::ptr::null_mut();
    // SAFETY: rt_sigprocmask(2) with a live set of the kernel's size; the old one is not wanted.
    unsafe {
        belay_sys::raw::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            &raw const all,
            old,
            8_usize,
        )
    };
    loop {
        sleep(999_999_999);
    }
}

/// Stops all other threads of the process, as far as they are not inside effectful calls.
pub(super) fn stop() {
    let Some(signal) = choose() else { return };
    let (process, me) = (process_id(), thread_id());
    let mut told = 0;
    each_thread(|thread| {
        // One inside a call is not disturbed: it stops when it leaves.
        if thread != me && !calls::is_inside(thread) {
            // SAFETY: tgkill(2) takes numbers only; a thread that has ended meanwhile is not found.
            let failed =
                unsafe { belay_sys::raw::syscall(libc::SYS_tgkill, process, thread, signal) } != 0;
            told += usize::from(!failed);
        }
    });
    let end = now().saturating_add(HEARING);
    while HEARD.load(Ordering::Acquire) < told && now() < end {
        sleep(50_000);
    }
}

/// Finds a signal that has no handler, and gives it ours. Calls that it interrupts go on.
fn choose() -> Option<c_int> {
    let (last, first) = (libc::SIGRTMAX() - 1, libc::SIGRTMIN());
    // The first is sent by no kernel and no program of today, and debuggers know it by name.
    [libc::SIGSTKFLT].into_iter().chain((first..=last).rev()).find(|signal| {
        // SAFETY: a zeroed sigaction is a valid value of that plain C structure.
        let mut present: libc::sigaction = unsafe { zeroed() };
        // SAFETY: asks only, into a live structure.
        let asked = unsafe { libc::sigaction(*signal, std::ptr::null(), &raw mut present) } == 0;
        asked && present.sa_sigaction == libc::SIG_DFL && take(*signal)
    })
}

fn take(signal: c_int) -> bool {
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { zeroed() };
    ours.sa_sigaction = stopped as extern "C" fn(c_int) as usize;
    ours.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: a live set.
    unsafe { libc::sigfillset(&raw mut ours.sa_mask) };
    // SAFETY: a live structure with a handler of the right type, which lives as long as the
    // process: the shim is never unloaded.
    unsafe { libc::sigaction(signal, &raw const ours, std::ptr::null_mut()) == 0 }
}

/// Calls `act` with the id of each thread of this process. Threads that start meanwhile may be
/// missed: they are started by threads that are about to be stopped.
fn each_thread(mut act: impl FnMut(i32)) {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let path = c"/proc/self/task".as_ptr();
    // SAFETY: openat(2) with a NUL-terminated literal.
    let dir = unsafe { belay_sys::raw::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) }
        as c_int;
    if dir < 0 {
        return;
    }
    // Small, as all that the handler has on the stack: see there.
    let mut buffer = [0_u64; 64];
    loop {
        let room = size_of_val(&buffer);
        let at = buffer.as_mut_ptr();
        // SAFETY: getdents64(2) into a live buffer of that size.
        let got = unsafe { belay_sys::raw::syscall(libc::SYS_getdents64, dir, at, room) };
        let Some(got) = usize::try_from(got).ok().filter(|got| (1..=room).contains(got)) else {
            break;
        };
        // SAFETY: the buffer is plain memory, aligned for more than bytes, and `got` is at most its
        // size; it is not written to while the slice lives.
        let mut rest = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), got) };
        while let Some(name) = rest.get(offset_of!(libc::dirent64, d_name)..) {
            if let Some(thread) = number(name) {
                act(thread);
            }
            let length = rest.get(offset_of!(libc::dirent64, d_reclen)..);
            let length = length.and_then(|bytes| bytes.first_chunk::<2>());
            let length = length.map_or(0, |bytes| usize::from(u16::from_ne_bytes(*bytes)));
            rest = if length == 0 { &[] } else { rest.get(length..).unwrap_or(&[]) };
        }
    }
    // SAFETY: close(2) of the descriptor just opened.
    unsafe { belay_sys::raw::syscall(libc::SYS_close, dir) };
}

/// The number that a NUL-terminated name is.
fn number(name: &[u8]) -> Option<i32> {
    let mut sum: i32 = 0;
    let mut any = false;
    for byte in name {
        match byte {
            0 => break,
            b'0'..=b'9' => {
                sum = sum.checked_mul(10)?.checked_add(i32::from(byte - b'0'))?;
                any = true;
            }
            _ => return None,
        }
    }
    any.then_some(sum)
}
