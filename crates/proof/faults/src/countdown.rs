//! A process that is killed when a thread of it makes its n-th system call from now on, whichever
//! call that is.
//!
//! Each call of the thread counts, those of other threads do not. As a [`Tracer`](crate::Tracer),
//! it is a thread of its own.

use crate::tracer::Bell;
use crate::tracing::{Tracing, pid};
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::process::ChildStdin;
use std::sync::mpsc;

/// A process that is killed in a while. Dropping it lets the process run on, if it still does.
#[derive(Debug)]
pub struct Countdown(Tracing<bool>);

impl Countdown {
    /// Attaches to thread `thread` of process `process`. When this returns, its calls count: at the
    /// entry of the `calls`-th one, from 1 on, the process is killed, and the call is not made. If
    /// the thread sleeps in a call, going on with that is the first one.
    ///
    /// # Errors
    /// When there is no such thread or it must not be traced.
    pub fn set(process: u32, thread: u32, calls: u64) -> Result<Self> {
        let (process, traced) = (pid(process)?, pid(thread)?);
        let started = Tracing::start("countdown", move |tell| count(process, traced, calls, tell));
        match started.with_context(|| format!("tracing thread {traced}"))? {
            Ok(tracing) => Ok(Self(tracing)),
            Err(_) => bail!("thread {traced} ended while it was being attached"),
        }
    }

    /// Lets the process go, unless it was killed; says whether it was.
    ///
    /// # Errors
    /// When tracing failed.
    pub fn finish(self) -> Result<bool> {
        self.0.finish()
    }
}

fn count(
    process: Pid,
    traced: Pid,
    mut calls: u64,
    tell: &mpsc::Sender<ChildStdin>,
) -> Result<bool> {
    let mut bell = Bell::new()?;
    let mut ringer = bell.ringer.take();
    // The thread and the bell are this one's; other children of this process are not to be touched.
    let own = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    let look = own | WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    ptrace::seize(traced, Options::PTRACE_O_TRACESYSGOOD).context("attaching (PTRACE_SEIZE)")?;
    ptrace::interrupt(traced).context("stopping the thread")?;
    let (mut killed, mut leaving) = (false, false);
    loop {
        let status = match waitid(Id::All, look) {
            Err(Errno::EINTR) => continue,
            other => other.context("waiting for the thread")?,
        };
        if status.pid() == Some(bell.pid()?) {
            bell.quiet()?;
            leaving = true;
            let _ = ptrace::interrupt(traced);
            continue;
        }
        let done = match waitpid(traced, Some(own)).context("taking note of the thread")? {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Ok(killed),
            WaitStatus::PtraceSyscall(_) if !leaving => match is_entry(traced) {
                Ok(true) if calls <= 1 => {
                    killed = true;
                    // It is stopped in front of the call, and dies there.
                    kill(process, Signal::SIGKILL)
                }
                entry => {
                    calls -= u64::from(entry == Ok(true));
                    ptrace::syscall(traced, None)
                }
            },
            WaitStatus::Stopped(_, signal) if leaving => {
                let _ = ptrace::detach(traced, signal);
                return Ok(killed);
            }
            WaitStatus::Stopped(_, signal) => ptrace::syscall(traced, signal),
            _ if leaving => {
                let _ = ptrace::detach(traced, None);
                return Ok(killed);
            }
            // The thread has stopped for the first time, or something that concerns all threads of
            // its process stops it.
            _ => {
                if let Some(ringer) = ringer.take() {
                    let _ = tell.send(ringer);
                }
                ptrace::syscall(traced, None)
            }
        };
        match done {
            // Killed in the meantime: its end comes next.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("going on with the thread"),
        }
    }
}

fn is_entry(thread: Pid) -> nix::Result<bool> {
    Ok(ptrace::syscall_info(thread)?.op == libc::PTRACE_SYSCALL_INFO_ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Nobody's child here, which writes on and on.
    fn busy() -> u32 {
        let start = ["-c", "yes >/dev/null 2>&1 & echo $!"];
        let output = Command::new("sh").args(start).output().expect("sh");
        String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number")
    }

    #[test]
    fn it_dies_of_its_n_th_call() {
        for calls in [1, 2, 1000] {
            let pid = busy();
            let countdown = Countdown::set(pid, pid, calls).unwrap();
            belay_fixtures::process::wait_for_exit(pid, std::time::Duration::from_secs(60))
                .unwrap();
            assert!(countdown.finish().unwrap(), "{calls}");
        }
    }

    #[test]
    fn who_is_let_go_lives_on() {
        let pid = busy();
        assert!(!Countdown::set(pid, pid, u64::MAX).unwrap().finish().unwrap());
        // It can be traced anew.
        let countdown = Countdown::set(pid, pid, 1).unwrap();
        belay_fixtures::process::wait_for_exit(pid, std::time::Duration::from_secs(60)).unwrap();
        assert!(countdown.finish().unwrap());
        assert!(Countdown::set(pid, pid, 1).is_err());
    }
}
