//! The end of the mount, as the daemon sees it.
//!
//! Whoever reads a device whose mount has gone gets ENODEV, which means that all is well. A socket
//! can say nothing but that there is no more, which libfuse takes for a fault: the daemon's exit
//! status would be another than without belay. No socket can be made to give that error. So when
//! the mount has gone, and only then, the relay traces the daemon (ptrace(2)), and gives it the
//! right answer where a read of its device has come to the end. Where it may not
//! (`kernel.yama.ptrace_scope` of 3), the daemon sees the end of a socket.
//!
//! Invariant: all of this is done by the one thread that waits for the daemon, as a tracer has to.

use crate::registers::{At, Registers, stopped_at};
use belay_sys::GoesOn;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use rustix::process::WaitStatus;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the one who waits for the daemon may take until the end of the mount is told to it.
const READY: Duration = Duration::from_secs(10);
/// For how long the daemon is traced: it may have much to do at its end, and is slow meanwhile.
const TRACED: Duration = Duration::from_secs(10); // a test waits for longer (led.c)
/// How often it is looked for threads that were made meanwhile.
const LOOKS: u32 = 8;

/// The signal that a stopped thread is about to get; 0 if it has stopped for something else. Also
/// one of those that the C library keeps to itself, with which libfuse ends its threads.
pub(crate) fn signal_before(status: i32) -> i32 {
    let (signal, event) = (status >> 8 & 0xff, status >> 16);
    if event != 0 || signal == libc::SIGTRAP | 0x80 { 0 } else { signal }
}

/// Tells the one who waits for the daemon that the mount has gone.
#[derive(Debug)]
pub(crate) struct Gone {
    said: AtomicBool,
    wake: UnixStream,
    ready: Mutex<bool>,
    changed: Condvar,
    device: Mutex<String>,
}

impl Gone {
    /// What is written to `wake` wakes the one who waits.
    pub(crate) fn new(wake: UnixStream) -> Self {
        let (ready, changed) = (Mutex::new(false), Condvar::new());
        Self { said: AtomicBool::new(false), wake, ready, changed, device: Mutex::default() }
    }

    /// The daemon's end of the device is this.
    pub(crate) fn set_device(&self, device: BorrowedFd<'_>) {
        let name = rustix::fs::fstat(device).map(|stat| format!("socket:[{}]", stat.st_ino));
        *self.device.lock().unwrap_or_else(PoisonError::into_inner) = name.unwrap_or_default();
    }

    /// The mount has gone. Comes back when the daemon may see that.
    pub(crate) fn say(&self) {
        self.said.store(true, Relaxed);
        if (&self.wake).write(&[0]).is_err() {
            return;
        }
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.changed.wait_timeout_while(ready, READY, |ready| !*ready);
    }

    /// Whether that was said.
    pub(crate) fn is_said(&self) -> bool {
        self.said.load(Relaxed)
    }

    fn is_ready(&self) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// The tracing of a daemon whose mount has gone.
#[derive(Debug)]
pub(crate) struct Tracing {
    begun: Instant,
    /// What the daemon's descriptors of its device lead to, by name.
    device: String,
}

impl Tracing {
    /// Traces all threads of the process, as far as that is allowed.
    pub(crate) fn begin(process: u32, gone: &Gone) -> Self {
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
        let mut known = BTreeSet::new();
        for _ in 0..LOOKS {
            let mut new = false;
            let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
            for thread in threads.flatten() {
                let number = thread.file_name().to_string_lossy().parse::<i32>().ok();
                let Some(thread) = number.filter(|number| known.insert(*number)) else { continue };
                new = true;
                let thread = Pid::from_raw(thread);
                if ptrace::seize(thread, options).is_ok() {
                    // What it sleeps in begins again, and is seen from its begin on.
                    let _ = ptrace::interrupt(thread);
                }
            }
            if !new {
                break;
            }
        }
        gone.is_ready();
        let device = gone.device.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { begun: Instant::now(), device }
    }

    /// The thread has stopped, at a call or elsewhere.
    pub(crate) fn stopped(&self, thread: Pid, status: WaitStatus) {
        let goes_on = self.answers(thread);
        belay_sys::go_on(thread.as_raw(), goes_on, signal_before(status.as_raw()));
    }

    /// Gives a thread that has stopped its answer, if that is due, and says how far it goes on.
    pub(crate) fn answers(&self, thread: Pid) -> GoesOn {
        self.answer(thread);
        if self.begun.elapsed() > TRACED { GoesOn::Free } else { GoesOn::ToNextCall }
    }

    /// Gives ENODEV to a thread whose read of the device has come to the end.
    fn answer(&self, thread: Pid) {
        // A call that came to its end as its thread was interrupted stops elsewhere.
        if stopped_at(thread) == Some(At::Begin) {
            return;
        }
        let Some(registers) = Registers::of(thread) else { return };
        let reads = [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg];
        let is_read = reads.contains(&registers.number()) && registers.result() == 0;
        if is_read && self.is_device(thread, registers.arguments()[0]) {
            registers.with_result(-i64::from(libc::ENODEV)).put(thread);
        }
    }

    /// Whether that descriptor of the thread is the daemon's end of the device.
    fn is_device(&self, thread: Pid, number: u64) -> bool {
        let link = std::fs::read_link(format!("/proc/{thread}/fd/{number}"));
        link.is_ok_and(|link| link.as_os_str() == &*self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_told_from_other_stops() {
        let stopped = |signal: i32, event: i32| event << 16 | signal << 8 | 0x7f;
        for signal in [libc::SIGTERM, 32, 64] {
            assert_eq!(signal_before(stopped(signal, 0)), signal);
        }
        assert_eq!(signal_before(stopped(libc::SIGTRAP | 0x80, 0)), 0, "a call");
        assert_eq!(signal_before(stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP)), 0);
        assert_eq!(signal_before(stopped(libc::SIGTRAP, 0)), libc::SIGTRAP);
    }
}
