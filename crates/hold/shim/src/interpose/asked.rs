//! Signals that ask a daemon to end: it is noted whether somebody else sent them.
//!
//! A daemon that unmounts and exits was asked to, or gave up by itself: sshfs sends itself SIGTERM
//! when it has lost its connection. Only who sent the signal tells the two apart, and the kernel
//! tells that to the handler alone. So a handler for one of these signals is put behind one of the
//! shim's, and everything that a program can ask about it is answered as if it were not.

use crate::descriptors::has_own_memory;
use crate::real;
use crate::shim::shim;
use belay_recorder::control::ending;
use libc::{c_int, c_void, sighandler_t, siginfo_t, sigset_t, timespec};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::Relaxed};

/// The signals by which a daemon is asked to end.
const ASKING: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// What the daemon has set for one of them: a handler, its flags, and whether signal(2) is to let
/// it interrupt calls.
struct Set {
    handler: AtomicUsize,
    flags: AtomicI32,
    interrupts: AtomicBool,
}

impl Set {
    const fn new() -> Self {
        let (handler, flags) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));
        Self { handler, flags, interrupts: AtomicBool::new(false) }
    }

    fn now(&self) -> (usize, i32) {
        (self.handler.load(Relaxed), self.flags.load(Relaxed))
    }

    fn put(&self, (handler, flags): (usize, i32)) {
        self.handler.store(handler, Relaxed);
        self.flags.store(flags, Relaxed);
    }
}

/// Of the process whose memory this is: a child of vfork(2) has handlers of its own, and resets
/// them before it becomes another program.
static SET: [Set; ASKING.len()] = [const { Set::new() }; ASKING.len()];

fn set_for(signal: c_int) -> Option<&'static Set> {
    let at = ASKING.iter().position(|asking| *asking == signal)?;
    SET.get(at)
}

/// Notes that this process was asked to end, if it is the daemon and was not asked by itself.
fn note(info: &siginfo_t) {
    let Some(shim) = shim() else { return };
    let me = std::process::id();
    // SAFETY: si_pid is there for signals that processes send, and for all others it is some word
    // of the same structure.
    let sender = unsafe { info.si_pid() };
    // What the kernel sends is from the terminal; a timer or the like is of the daemon's own
    // making.
    let from_process = info.si_code == libc::SI_USER
        || info.si_code == libc::SI_QUEUE
        || info.si_code == libc::SI_TKILL;
    let outside = from_process && u32::try_from(sender) != Ok(me);
    let control = shim.control();
    if (outside || info.si_code == libc::SI_KERNEL) && control.lease().pid == me {
        control.note_ending(shim.host.generation(), ending::ASKED);
    }
}

/// The handler in front of the daemon's own.
///
/// # Safety
/// The arguments are those that the kernel gives a handler with SA_SIGINFO.
unsafe extern "C-unwind" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: a siginfo that lives until the handler returns, by the caller's contract.
    note(unsafe { &*info });
    let Some(set) = set_for(signal) else { return };
    let (handler, flags) = set.now();
    if flags & libc::SA_RESETHAND != 0 && has_own_memory() {
        set.handler.store(libc::SIG_DFL, Relaxed);
    }
    if handler == libc::SIG_DFL {
        return by_default(signal); // another thread has just taken the handler away
    }
    if handler == libc::SIG_IGN {
        return;
    }
    type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);
    // SAFETY: a handler that the daemon gave to sigaction(2), of one of its two types; a function
    // of one argument takes no harm from two more in every calling convention that belay runs on.
    let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
    // SAFETY: what the kernel has given, to what the daemon has it given to.
    unsafe { handler(signal, info, context) };
}

/// Has a signal do what it does where there is no handler.
#[cold]
fn by_default(signal: c_int) {
    // SAFETY: a zeroed sigaction is a valid value of that plain C structure: the default, without
    // flags.
    let default: libc::sigaction = unsafe { zeroed() };
    // SAFETY: a live structure without a handler; what there was is not asked for.
    unsafe { real::sigaction(signal, &raw const default, null_mut()) };
    // Not raise(3): it is not the daemon that sends it.
    // SAFETY: gettid(2) takes nothing and cannot fail.
    let thread = unsafe { belay_sys::raw::syscall(libc::SYS_gettid) };
    // SAFETY: numbers only: the calling thread, and the signal whose handler this is.
    unsafe { belay_sys::raw::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) };
}

/// Whether `handler` is a function.
fn is_function(handler: usize) -> bool {
    handler != libc::SIG_DFL && handler != libc::SIG_IGN && handler != libc::SIG_ERR
}

/// sigaction(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(set) = set_for(signal).filter(|_| shim().is_some()) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::sigaction(signal, new, old) };
    };
    let before = set.now();
    // SAFETY: sigaction(2) takes null or a readable structure.
    let mut wanted = if new.is_null() { None } else { Some(unsafe { *new }) };
    let own = wanted.is_some() && has_own_memory();
    let after = wanted.map(|action| (action.sa_sigaction, action.sa_flags)).filter(|_| own);
    let has_handler = after.is_some_and(|(handler, _)| is_function(handler));
    if let Some(action) = wanted.as_mut().filter(|_| has_handler) {
        // What is noted first is at worst called for a signal that was meant for the handler
        // before.
        set.put((action.sa_sigaction, action.sa_flags));
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags |= libc::SA_SIGINFO;
    }
    let given = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the caller's arguments but for the action, which is null or a live structure with a
    // handler that is never unloaded and of the type that its flags say.
    let result = unsafe { real::sigaction(signal, given, old) };
    match after {
        _ if result != 0 && has_handler => set.put(before),
        // Until the kernel has taken the handler away, signals are for it.
        Some(after) if result == 0 && !has_handler => set.put(after),
        _ => {}
    }
    if result != 0 {
        return result;
    }
    if !old.is_null() {
        // SAFETY: filled by sigaction(2) just now, and the caller's to read and write.
        let shown = unsafe { &mut *old };
        if shown.sa_sigaction == on_signal as *const () as usize {
            shown.sa_sigaction = before.0;
            if before.1 & libc::SA_SIGINFO == 0 {
                shown.sa_flags &= !libc::SA_SIGINFO;
            }
        }
    }
    result
}

/// signal(2) with these flags.
///
/// # Safety
/// As that of sigaction(2) with this handler and these flags.
unsafe fn simple(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: a zeroed sigaction is a valid value of that plain C structure.
    let mut new: libc::sigaction = unsafe { zeroed() };
    // SAFETY: as above.
    let mut old: libc::sigaction = unsafe { zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: live structures; the handler is what the caller gives to signal(2).
    let result = unsafe { sigaction(signal, &raw const new, &raw mut old) };
    if result == 0 { old.sa_sigaction } else { libc::SIG_ERR }
}

/// signal(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let Some(set) = set_for(signal).filter(|_| shim().is_some()) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::signal(signal, handler) };
    };
    let flags = if set.interrupts.load(Relaxed) { 0 } else { libc::SA_RESTART };
    // SAFETY: the caller's arguments, with the flags of the C library's signal(2).
    unsafe { simple(signal, handler, flags) }
}

/// siginterrupt(3): it changes the flags that the kernel has by itself, and what signal(2) gives it
/// from then on.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::siginterrupt(signal, interrupts) };
    if let Some(set) = set_for(signal).filter(|_| result == 0) {
        // Also where it is a child of vfork(2): the C library notes it in the same memory.
        set.interrupts.store(interrupts != 0, Relaxed);
    }
    result
}

/// signal(2) as System V has it, which strict programs are compiled to.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __sysv_signal(
    signal: c_int,
    handler: sighandler_t,
) -> sighandler_t {
    if set_for(signal).is_none() || shim().is_none() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::sysv_signal(signal, handler) };
    }
    // SAFETY: the caller's arguments, with the flags of the C library's function.
    unsafe { simple(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER) }
}

/// sigtimedwait(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigtimedwait(
    signals: *const sigset_t,
    info: *mut siginfo_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: a zeroed siginfo is a valid value of that plain C structure.
    let mut own: siginfo_t = unsafe { zeroed() };
    let into = if info.is_null() { &raw mut own } else { info };
    // SAFETY: the caller's arguments, but for a live structure where there was none.
    let signal = unsafe { real::sigtimedwait(signals, into, limit) };
    if set_for(signal).is_some() {
        // SAFETY: filled by the call, as it has found a signal.
        note(unsafe { &*into });
    }
    signal
}

/// sigwaitinfo(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwaitinfo(
    signals: *const sigset_t,
    info: *mut siginfo_t,
) -> c_int {
    // SAFETY: the caller's arguments; without a limit it is the same.
    unsafe { sigtimedwait(signals, info, std::ptr::null()) }
}

/// sigwait(3).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwait(signals: *const sigset_t, found: *mut c_int) -> c_int {
    loop {
        // SAFETY: the caller's set; neither information nor limit is wanted.
        let signal = unsafe { sigtimedwait(signals, null_mut(), std::ptr::null()) };
        match real::errno() {
            _ if signal >= 0 => {
                // SAFETY: sigwait(3) has a place for the signal's number.
                unsafe { *found = signal };
                return 0;
            }
            libc::EINTR => {}
            errno => return errno,
        }
    }
}

/// signalfd(2): what comes by such a descriptor is read like any file, so nobody sees whose it is.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signalfd(
    fd: c_int,
    signals: *const sigset_t,
    flags: c_int,
) -> c_int {
    // SAFETY: sigismember(3) reads the set, which signalfd(2) takes as well.
    let asks = |signal| unsafe { libc::sigismember(signals, signal) } == 1;
    if let Some(shim) = shim()
        && !signals.is_null()
        && ASKING.into_iter().any(asks)
    {
        shim.control().note_ending(shim.host.generation(), ending::UNSEEN);
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::signalfd(fd, signals, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_shim_signals_are_the_c_librarys() {
        extern "C" fn nothing(_: c_int) {}
        let handler = nothing as *const () as usize;
        // SAFETY: a handler that does nothing, for a signal that nobody sends.
        assert_eq!(unsafe { signal(libc::SIGHUP, handler) }, libc::SIG_DFL);
        // SAFETY: takes the handler away again.
        assert_eq!(unsafe { signal(libc::SIGHUP, libc::SIG_DFL) }, handler);
    }
}
