//! Signals: as a readable descriptor, and what keeps a process from acting on one.

use crate::clock::SECOND;
use crate::error::{Error, Result};
use crate::process::{is_frozen, is_stopped};
use crate::procfs;
use rustix::fd::{AsFd, BorrowedFd};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGXFSZ};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Wishes to stop that come this close together, in nanoseconds, are one: Ctrl-C reaches all of a
/// process group.
pub const SAME_WISH: u64 = SECOND / 3;

/// The end of children and the wishes to stop, as they arrive.
#[derive(Debug)]
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

impl Signals {
    /// Catches SIGCHLD, SIGTERM, SIGINT and SIGHUP. A SIGHUP that is ignored (nohup) stays so.
    ///
    /// # Errors
    /// Those of socketpair(2) and sigaction(2).
    pub fn catch() -> Result<Self> {
        let wrap = |error| Error::system("catch", "signals", error, "");
        let (read, write) = UnixStream::pair().map_err(wrap)?;
        let mut signals = vec![SIGCHLD, SIGTERM];
        signals.extend([SIGINT, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)));
        let delivery =
            SignalDelivery::with_pipe(read, write, SignalOnly, &signals).map_err(wrap)?;
        Ok(Self { delivery })
    }

    /// The signals that came since the last call, each once.
    pub fn pending(&mut self) -> Vec<i32> {
        self.delivery.pending().collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// What is written beyond the limit of file size (`ulimit -f`) fails from now on, instead of ending
/// this process. Caught and not ignored: a signal that is ignored would be so in the daemon as
/// well.
///
/// # Errors
/// Those of sigaction(2).
pub fn survive_size_limit() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map(drop)
        .map_err(|error| Error::system("catch", "a signal", error, ""))
}

/// Ends this process as `signal` does if nobody catches it.
pub fn end_by(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// Has all signals come to this process, and to those that it starts, whoever has started it with
/// what signals blocked: what is caught must come, and a page of a file that is gone must not end
/// it. Gives the set of those that did not come, for the daemon.
///
/// # Errors
/// Those of pthread_sigmask(3).
pub fn unblock() -> Result<u64> {
    belay_sys::unblock_signals().map_err(|error| Error::system("unblock", "signals", error, ""))
}

/// Whether whoever has started this process has had it ignore that signal (nohup).
pub fn is_ignored(signal: i32) -> bool {
    let status = procfs::read_text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

/// Why process `pid` does not act on this signal before something else happens; `None` if it may.
pub fn defers(pid: u32, signal: i32) -> Option<&'static str> {
    // These are acted on by a process that is stopped, and what is frozen is told of by its
    // silence.
    if matches!(signal, SIGKILL | SIGSTOP | SIGCONT) {
        return None;
    }
    if is_stopped(pid) {
        return Some("it is stopped, and takes no signal before SIGCONT");
    }
    let frozen = is_frozen(pid) || is_frozen_to_signals(pid);
    frozen.then_some("it is frozen (cgroup freezer), and takes no signal before it is thawed")
}

/// Whether the freezer of cgroup v2 holds process `pid`, as far as that is told: until it is
/// killed.
fn is_frozen_to_signals(pid: u32) -> bool {
    let groups = procfs::read_text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return false;
    };
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|root| {
        fs::read_to_string(format!("{root}{group}/cgroup.events"))
            .is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
    })
}
