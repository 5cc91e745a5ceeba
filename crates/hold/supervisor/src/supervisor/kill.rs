//! Killing the daemon, which belay may not always: root without CAP_KILL has no say in a daemon
//! that has changed its user.
//!
//! The rule: the event loop signals the daemon by [`Supervisor::signal_daemon`] alone. (A thread
//! that removes a mount asks the daemon of a second one to end.) What is refused is said as a
//! reason of degradation, and what cannot come is not waited for: who wants an end that nothing
//! comes after names the process and leaves it.

use super::Supervisor;
use crate::degraded::{KILL_REMEDY, Kind};
use crate::process::Watched;
use rustix::io::Errno;
use signal_hook::consts::SIGKILL;

impl Supervisor {
    /// The process of the daemon of now, be it one that does not serve yet.
    pub(super) fn process(&self) -> Option<&Watched> {
        self.daemon.process()
    }

    /// Sends the daemon of now a signal.
    ///
    /// # Errors
    /// Those of the kernel, which are said; `ESRCH` if there is no daemon.
    pub(super) fn signal_daemon(&mut self, signal: i32) -> rustix::io::Result<()> {
        let process = self.process().ok_or(Errno::SRCH)?;
        let (pid, sent) = (process.pid, process.signal(signal));
        match sent {
            // No number of a signal: that is nothing of the daemon's.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => self.cannot_signal(pid, error),
        }
        sent
    }

    /// Kills the daemon of now; false if there is none, or belay may not, which is said.
    pub(super) fn kill_daemon(&mut self) -> bool {
        self.signal_daemon(SIGKILL).is_ok()
    }

    /// Kills the last daemon of this mount. One that belay may not end is named, and left.
    pub(super) fn kill_last(&mut self) -> bool {
        let pid = self.process().map(|process| process.pid);
        let killed = self.kill_daemon();
        if let Some(pid) = pid.filter(|_| !killed) {
            lives_on(pid, "the daemon, lives on without its mount");
        }
        killed
    }

    /// Kills all of these, which are not known to be the daemon. Those that belay may not end are
    /// named, and left.
    pub(super) fn kill_all(processes: &[Watched]) {
        for process in processes {
            if process.signal(SIGKILL).is_err() {
                lives_on(process.pid, "which the daemon has started, lives on");
            }
        }
    }

    /// The daemon cannot be held, for a reason that another start would not change: nothing is held
    /// from now on.
    pub(super) fn refuse_daemon(&mut self, why: &str) {
        if self.book.generation > 0 {
            self.give_up(why);
            return;
        }
        tracing::error!("{}: {why}", self.config.command_line());
        self.kill_last();
        self.find_mount();
        self.finish(1);
    }

    /// Looks whether belay may end the daemon, which has changed its user perhaps: that is said
    /// before it is needed.
    pub(super) fn look_whether_killable(&mut self, pid: u32) {
        let number = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        match number.map(rustix::process::test_kill_process) {
            Some(Err(error @ Errno::PERM)) => self.cannot_signal(pid, error),
            Some(Ok(())) => self.restored(Kind::Kill),
            _ => {}
        }
    }

    fn cannot_signal(&mut self, pid: u32, error: Errno) {
        let why = match error {
            Errno::PERM => "it has another user, and belay has no CAP_KILL".to_owned(),
            error => error.to_string(),
        };
        self.degrade(
            Kind::Kill,
            &format!(
                "belay may not end the daemon, process {pid} ({why}): limits such as --hang-timeout cannot be kept, it cannot be \
                 restarted, and `belay stop --force` leaves it alive; {KILL_REMEDY}"
            ),
        );
    }
}

fn lives_on(pid: u32, what: &str) {
    tracing::error!("process {pid}, {what}, as belay may not end it: end it yourself");
}
