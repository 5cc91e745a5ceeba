//! The thread that traces: attaching to a process, resuming its threads, letting them go.
//!
//! The kernel takes orders about a tracee from the thread alone that attached it, so each tracer is
//! a thread of its own. It sleeps in `waitid` until a tracee stops; to be woken for another reason
//! it has a *bell*: a child process that ends when its standard input does. If the tracer's thread
//! ends in whatever way, the kernel lets all tracees run on.
//!
//! The crate pete tells stops apart as well. It is not used: it waits for whichever tracee stops,
//! and can neither be woken for another reason nor leave those of another tracer in this process
//! alone.

use std::collections::HashSet;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::breakpoints::{Breakpoints, Stop};
use crate::plan::{FaultSignal, Plan, Report, Scope};
use crate::registers;
use crate::tracing::{Tracing, pid};
use crate::watch::Watch;

/// A process under observation. Dropping it lets the process run on, if it still does.
#[derive(Debug)]
pub struct Tracer(Tracing<Report>);

impl Tracer {
    /// Attaches to all threads of a process. When this returns, the next request is seen.
    ///
    /// # Errors
    /// When there is no such process or it must not be traced (somebody else does, a lack of
    /// privileges).
    pub fn attach(process: u32, plan: Plan) -> Result<Self> {
        let leader = pid(process)?;
        let started = Tracing::start("tracer", move |tell| Loop::start(leader, plan)?.run(tell));
        match started.with_context(|| format!("tracing process {process}"))? {
            Ok(tracing) => Ok(Self(tracing)),
            Err(report) => {
                bail!("process {process} ended ({:?}) while it was being attached", report.end)
            }
        }
    }

    /// Lets the process go and says what was seen. A reply that is just being written is waited
    /// for.
    ///
    /// # Errors
    /// When tracing failed.
    pub fn finish(self) -> Result<Report> {
        self.0.finish()
    }
}

/// Everything that the tracer's thread has.
struct Loop {
    leader: Pid,
    /// The process is a child of this one: its end is left for whoever started it.
    ours: bool,
    signal: FaultSignal,
    company: Option<Pid>,
    watch: Watch,
    /// Set if threads are to stop at functions and not at system calls.
    breakpoints: Option<Breakpoints>,
    threads: HashSet<Pid>,
    /// No longer traced. A thread may be heard of itself before its creator tells of it.
    gone: HashSet<Pid>,
    /// Attached and not yet seen to stop.
    fresh: HashSet<Pid>,
    /// A thread that was led astray and has not faulted yet.
    falling: Option<Pid>,
    /// The bell has been rung.
    rung: bool,
    /// Every thread is let go at its next stop.
    leaving: bool,
    bell: Bell,
}

impl Loop {
    fn start(leader: Pid, plan: Plan) -> Result<Self> {
        let bell = Bell::new()?;
        let signal = plan.fault.map_or(FaultSignal::Kill, |fault| fault.signal);
        let mut threads = HashSet::new();
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
        // Until no look finds a thread that is not yet attached: those start no others unseen.
        loop {
            let mut news = false;
            for thread in threads_of(leader)? {
                if threads.contains(&thread) {
                    continue;
                }
                match ptrace::seize(thread, options) {
                    Ok(()) => news |= threads.insert(thread),
                    // It has just ended.
                    Err(Errno::ESRCH) => {}
                    // Its creator was attached already, so it is, too.
                    Err(Errno::EPERM) if !threads.is_empty() => news |= threads.insert(thread),
                    Err(error) => return Err(error).context("attaching (PTRACE_SEIZE)"),
                }
            }
            if !news {
                break;
            }
        }
        for thread in &threads {
            let _ = ptrace::interrupt(*thread);
        }
        let breakpoints = match &plan.target.scope {
            Scope::Library { name, .. } => Some(Breakpoints::set(leader, name)?),
            Scope::Calls | Scope::Files(_) => None,
        };
        let company =
            plan.target.company.and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        Ok(Self {
            leader,
            ours: parent_of(leader)? == Pid::this(),
            signal,
            company,
            breakpoints,
            watch: Watch::new(leader, plan),
            fresh: threads.clone(),
            threads,
            gone: HashSet::new(),
            falling: None,
            rung: false,
            leaving: false,
            bell,
        })
    }

    fn run(mut self, tell: &mpsc::Sender<ChildStdin>) -> Result<Report> {
        // Tracees and the bell are this thread's; other children of this process are not to be
        // touched.
        let own = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let look = own | WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        while !self.threads.is_empty() {
            if self.fresh.is_empty()
                && let Some(ringer) = self.bell.ringer.take()
            {
                // An owner that has gone has dropped its end: that is heard below.
                let _ = tell.send(ringer);
            }
            let status = match waitid(Id::All, look) {
                Err(Errno::EINTR) => continue,
                other => other.context("waiting for a tracee")?,
            };
            let Some(pid) = status.pid() else { continue };
            if pid == self.bell.pid()? {
                self.bell.quiet()?;
                self.rung = true;
                self.leave_if_idle();
                continue;
            }
            let over = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
            if over && pid == self.leader {
                self.watch.report.end = Some(ending(&status));
            }
            if over && pid == self.leader && self.ours {
                self.ended(pid);
                continue;
            }
            let status = waitpid(pid, Some(own)).context("taking note of a tracee")?;
            match self.stopped(status) {
                // Killed in the meantime: its end comes next.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("after {status:?}")),
            }
            self.leave_if_idle();
        }
        Ok(self.watch.report)
    }

    fn stopped(&mut self, status: WaitStatus) -> nix::Result<()> {
        match status {
            WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..) => {
                self.ended(thread);
                Ok(())
            }
            WaitStatus::PtraceEvent(thread, _, event) => {
                if event == ptrace::Event::PTRACE_EVENT_CLONE as i32
                    && let Ok(new) = i32::try_from(ptrace::getevent(thread)?).map(Pid::from_raw)
                    && !self.gone.contains(&new)
                {
                    self.threads.insert(new);
                }
                if self.fresh.remove(&thread) && self.breakpoints.is_some() {
                    Breakpoints::send_round(self.leader, thread)?;
                }
                self.resume(thread, None)
            }
            WaitStatus::Stopped(thread, Signal::SIGTRAP) if self.breakpoints.is_some() => {
                self.trapped(thread)
            }
            WaitStatus::Stopped(thread, signal) => {
                if self.falling == Some(thread)
                    && matches!(signal, Signal::SIGSEGV | Signal::SIGABRT)
                {
                    self.falling = None;
                }
                self.resume(thread, Some(signal))
            }
            WaitStatus::PtraceSyscall(thread) => self.call(thread),
            WaitStatus::Continued(_) | WaitStatus::StillAlive => Ok(()),
        }
    }

    fn call(&mut self, thread: Pid) -> nix::Result<()> {
        let entry = ptrace::syscall_info(thread)?.op == libc::PTRACE_SYSCALL_INFO_ENTRY;
        let here = if entry { self.watch.enters(thread)? } else { self.watch.leaves(thread)? };
        if here { self.crash(thread, entry) } else { self.resume(thread, None) }
    }

    /// A thread has run into a breakpoint.
    fn trapped(&mut self, thread: Pid) -> nix::Result<()> {
        let Some(breakpoints) = &mut self.breakpoints else { return Ok(()) };
        let (at, here) = match breakpoints.stopped(thread)? {
            Stop::Elsewhere => return self.resume(thread, Some(Signal::SIGTRAP)),
            Stop::Stepped => return self.resume(thread, None),
            Stop::Passing(at) => (at, false),
            Stop::Return(at) => (at, self.watch.returns(thread)?),
            Stop::Entry(at, call) => {
                let here = self.watch.calls(thread, call);
                if self.watch.is_inside(thread) {
                    breakpoints.expect_return(thread, at)?;
                }
                (at, here)
            }
        };
        if here {
            return self.crash(thread, false);
        }
        match &mut self.breakpoints {
            Some(breakpoints) if !self.leaving => breakpoints.pass(thread, at),
            _ => self.resume(thread, None),
        }
    }

    /// This is the point. At its `entry` a system call is not made.
    fn crash(&mut self, thread: Pid, entry: bool) -> nix::Result<()> {
        self.watch.report.crashed = true;
        if self.signal != FaultSignal::Kill && entry {
            registers::cancel(thread)?;
        }
        match self.signal {
            // A call at whose entry the thread dies is not made, nor is anything run after one.
            FaultSignal::Kill => {
                let done = kill(self.leader, Signal::SIGKILL);
                self.company.map_or(Ok(()), |other| kill(other, Signal::SIGKILL)).and(done)
            }
            FaultSignal::Segv => {
                self.falling = Some(thread);
                // A true fault, which no mask keeps away (mergerfs has one), rather than a signal
                // that is sent.
                registers::lead_astray(thread)?;
                ptrace::cont(thread, None)
            }
            FaultSignal::Abrt => {
                self.falling = Some(thread);
                ptrace::cont(thread, Signal::SIGABRT)
            }
        }
    }

    fn resume(&mut self, thread: Pid, signal: Option<Signal>) -> nix::Result<()> {
        if self.leaving {
            ptrace::detach(thread, signal)?;
            self.ended(thread);
            return Ok(());
        }
        match &self.breakpoints {
            Some(breakpoints) if breakpoints.is_passing(thread) => ptrace::step(thread, signal),
            Some(_) => ptrace::cont(thread, signal),
            None => ptrace::syscall(thread, signal),
        }
    }

    fn ended(&mut self, thread: Pid) {
        self.gone.insert(thread);
        self.threads.remove(&thread);
        self.fresh.remove(&thread);
        self.watch.ended(thread);
        if let Some(breakpoints) = &mut self.breakpoints {
            breakpoints.ended(thread);
        }
        if self.falling == Some(thread) {
            self.falling = None;
        }
    }

    /// Begins to let go if that is wanted and nothing is half done.
    fn leave_if_idle(&mut self) {
        if self.rung && !self.leaving && self.falling.is_none() && !self.watch.replying() {
            self.leaving = true;
            if let Some(breakpoints) = &mut self.breakpoints {
                breakpoints.remove();
            }
            for thread in &self.threads {
                let _ = ptrace::interrupt(*thread);
            }
        }
    }
}

/// The child process that wakes the tracer.
pub(crate) struct Bell {
    child: Child,
    pub ringer: Option<ChildStdin>,
}

impl Bell {
    pub fn new() -> Result<Self> {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = cat.spawn().context("starting `cat`, which wakes the tracer")?;
        let ringer = child.stdin.take();
        Ok(Self { child, ringer })
    }

    pub fn pid(&self) -> Result<Pid> {
        i32::try_from(self.child.id()).map(Pid::from_raw).context("a process id")
    }

    /// Takes note that it has rung.
    pub fn quiet(&mut self) -> Result<()> {
        self.child.wait().map(drop).context("waiting for `cat`")
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ringer = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ending(status: &WaitStatus) -> String {
    match status {
        WaitStatus::Signaled(_, signal, _) => format!("signal {signal}"),
        WaitStatus::Exited(_, code) => format!("exit {code}"),
        other => format!("{other:?}"),
    }
}

fn threads_of(process: Pid) -> Result<Vec<Pid>> {
    let dir = format!("/proc/{process}/task");
    let entries = std::fs::read_dir(&dir).with_context(|| format!("listing {dir}"))?;
    let ids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    Ok(ids.map(Pid::from_raw).collect())
}

fn parent_of(process: Pid) -> Result<Pid> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:"));
    let pid = line.and_then(|pid| pid.trim().parse().ok());
    pid.map(Pid::from_raw).with_context(|| format!("no parent in {path}"))
}
