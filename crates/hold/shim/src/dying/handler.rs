//! What is done at a deadly signal.
//!
//! The first thread that gets one sees to all; later ones stop. Of its own process only: a child
//! that was forked has these handlers too, and dies as it would without them.
//!
//! It runs on whatever alternate stack a thread has. Rust's runtime gives each of its threads one
//! that is 4 KiB larger than the kernel's frame for a signal, and no more: so all of this must do
//! with less.

use super::raw::{now, process_id, sleep, thread_id};
use super::{calls, others, remains};
use crate::real;
use crate::shim::policy;
use crate::shim::shim;
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

/// The signals that a program gets for what it does itself.
const DEADLY: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
];
/// How long effectful calls of other threads may hold up a death.
const PATIENCE: u64 = 1_000_000_000;

/// The thread because of whose crash the others are to stop; 0 while all is well.
static DYING: AtomicI32 = AtomicI32::new(0);
/// The process that the handlers are for.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The first thread that got a deadly signal; 0 for none.
static FIRST: AtomicI32 = AtomicI32::new(0);
/// That signal, if it is to be seen to when the call that it came into is over.
static PUT_OFF: AtomicI32 = AtomicI32::new(0);

/// Installs the handlers, for signals that the daemon has left as they are. By now it has set up
/// its own.
pub(crate) fn install() {
    if PROCESS.swap(process_id(), Ordering::AcqRel) != 0 {
        return;
    }
    super::prepare_thread();
    remains::prepare();
    for signal in DEADLY {
        // SAFETY: a zeroed sigaction is a valid value of that plain C structure.
        let mut present: libc::sigaction = unsafe { zeroed() };
        // SAFETY: asks only, into a live structure.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut present) } == 0;
        if asked && present.sa_sigaction == libc::SIG_DFL {
            set(signal, on_signal);
        }
    }
}

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn set(signal: c_int, handler: Handler) {
    // SAFETY: a zeroed sigaction is a valid value of that plain C structure.
    let mut new: libc::sigaction = unsafe { zeroed() };
    new.sa_sigaction = handler as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a live set.
    unsafe { libc::sigfillset(&raw mut new.sa_mask) };
    // SAFETY: a live structure; the handler is of the type that the flags say, and is never
    // unloaded.
    unsafe { libc::sigaction(signal, &raw const new, null_mut()) };
}

/// Gives a signal its default action. Not by way of libc, which has a lock for SIGABRT.
fn reset(signal: c_int) {
    // The kernel's structure: handler, flags, restorer, mask. All zeros: the default action.
    let default = [0_u64; 4];
    let (new, old) = (&raw const default, null_mut::<u64>());
    // SAFETY: rt_sigaction(2) with a live structure of the kernel's shape, and the size of its
    // sets.
    unsafe { belay_sys::raw::syscall(libc::SYS_rt_sigaction, signal, new, old, 8_usize) };
}

/// The handler.
///
/// # Safety
/// The arguments are those that the kernel gives a handler with SA_SIGINFO.
unsafe extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let errno = real::errno();
    // SAFETY: a siginfo that lives until the handler returns, by the caller's contract.
    let info = unsafe { &*info };
    // SAFETY: as above, a ucontext.
    let context = unsafe { &*context.cast::<ucontext_t>() };
    die(signal, info, context);
    // The thread may have a call of its own to come back to.
    real::set_errno(errno);
}

fn die(signal: c_int, info: &siginfo_t, context: &ucontext_t) {
    let code = info.si_code;
    let Some(shim) = shim().filter(|_| PROCESS.load(Ordering::Acquire) == process_id()) else {
        end_by(signal, code);
        return;
    };
    let me = thread_id();
    let first = FIRST.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
    match first {
        Ok(_) => {}
        // The patience with the call that this thread was in is at an end.
        Err(found) if found == me => {
            end_by(signal, 0);
            return;
        }
        Err(_) => {
            calls::give_up();
            others::park();
        }
    }
    let begin = now();
    let stops = policy().records();
    if stops {
        DYING.store(me, Ordering::SeqCst);
        others::stop();
    }
    remains::write(shim, signal, info, context);
    if code <= 0 && calls::am_inside() {
        // It came into this thread's own effectful call, which is finished first.
        PUT_OFF.store(signal, Ordering::Release);
        if end_later(signal, me, PATIENCE) {
            return;
        }
    }
    calls::give_up();
    await_calls(begin, stops);
    end_by(signal, code);
}

/// The calling thread comes to where it could make something known. If the daemon is dying it stops
/// here.
#[inline]
pub(crate) fn safepoint() {
    if DYING.load(Ordering::Relaxed) != 0 {
        stop_here();
    }
}

/// The calling thread finds the daemon dying: it stops, or if it is the one because of which that
/// is so, ends the process.
#[cold]
fn stop_here() {
    let signal = PUT_OFF.load(Ordering::Acquire);
    if FIRST.load(Ordering::Acquire) != thread_id() || signal == 0 {
        others::park();
    }
    await_calls(now(), true);
    end_by(signal, 0);
    // A signal to itself comes before the system call that sends it returns.
    others::park();
}

/// Waits until no thread is inside an effectful call any more.
fn await_calls(begin: u64, stops: bool) {
    let end = begin.saturating_add(PATIENCE);
    while stops && calls::any_inside() && now() < end {
        sleep(100_000);
    }
}

/// Ends the process by `signal`, as it would have ended without a handler: when the handler
/// returns, at the latest.
fn end_by(signal: c_int, code: c_int) {
    reset(signal);
    let again = matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE);
    let me = thread_id();
    // What the kernel sent for an instruction, it sends again when that is tried again: with the
    // true address, for a core dump. Should it go well this time, the signal comes all the same.
    if again && code > 0 && end_later(signal, me, PATIENCE / 10) {
        return;
    }
    // SAFETY: tgkill(2) takes numbers only. The signal waits while the handler runs.
    unsafe { belay_sys::raw::syscall(libc::SYS_tgkill, process_id(), me, signal) };
}

/// Has the kernel send `signal` to thread `me` after a time.
fn end_later(signal: c_int, me: i32, nanoseconds: u64) -> bool {
    // SAFETY: a zeroed sigevent is a valid value of that plain C structure.
    let mut event: libc::sigevent = unsafe { zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    event.sigev_notify_thread_id = me;
    let mut timer: c_int = 0;
    let (clock, event, timer_at) = (libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
    // SAFETY: timer_create(2) with live structures; the kernel's timer id is an int.
    let made =
        unsafe { belay_sys::raw::syscall(libc::SYS_timer_create, clock, event, timer_at) } == 0;
    // SAFETY: a zeroed itimerspec is a valid value of that plain C structure.
    let mut when: libc::itimerspec = unsafe { zeroed() };
    when.it_value.tv_sec = (nanoseconds / 1_000_000_000) as libc::time_t;
    when.it_value.tv_nsec = (nanoseconds % 1_000_000_000) as i64;
    let old: *mut libc::itimerspec = null_mut();
    // SAFETY: timer_settime(2) of the timer just made, with a live structure.
    made && unsafe {
        belay_sys::raw::syscall(libc::SYS_timer_settime, timer, 0, &raw const when, old)
    } == 0
}
