//! Child processes that never outlive their owner.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A started process, killed and reaped when dropped. What it says on stdout and stderr goes to a log file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    what: String,
    log: Option<PathBuf>,
}

impl Process {
    /// Starts a command in a process group of its own, with stdin from `/dev/null` and its output in `log`.
    ///
    /// # Errors
    /// When the log cannot be made or the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let what = describe(&command);
        let file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let second = file.try_clone().context("duplicating the log's descriptor")?;
        command.stdin(Stdio::null()).stdout(file).stderr(second).process_group(0);
        let child = command.spawn().with_context(|| format!("starting `{what}`"))?;
        Ok(Self { child, what, log: Some(log.to_path_buf()) })
    }

    /// Takes charge of a child that was started elsewhere.
    #[must_use]
    pub fn adopt(child: Child, what: impl Into<String>) -> Self {
        Self { child, what: what.into(), log: None }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status, if it has ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("waiting for `{}`", self.what))
    }

    /// An error, with the last lines of output, if it has ended.
    ///
    /// # Errors
    /// When it has ended, however well.
    pub fn must_run(&mut self) -> Result<()> {
        match self.exited()? {
            None => Ok(()),
            Some(status) => bail!("`{}` ended early ({status}){}", self.what, self.tail()),
        }
    }

    /// Waits for the end, at most so long; `None` when it still runs.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.exited()? {
            return Ok(Some(status));
        }
        if wait_for_exit(self.pid(), limit)? {
            // The child is ours and has ended, so this returns at once.
            return Ok(Some(
                self.child.wait().with_context(|| format!("reaping `{}`", self.what))?,
            ));
        }
        Ok(None)
    }

    /// Sends a signal to the process, if it still runs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.exited()?.is_some() {
            return Ok(());
        }
        kill(self.pid(), signal)
    }

    /// The last lines of the log, as an addition to an error message.
    #[must_use]
    pub fn tail(&self) -> String {
        let text = self.log.as_ref().and_then(|p| std::fs::read(p).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("; its last words:\n  {}", lines[lines.len().saturating_sub(15)..].join("\n  "))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            // A process stuck in the kernel cannot be reaped: do not hang with it.
            if wait_for_exit(self.child.id(), Duration::from_secs(5)).unwrap_or(true) {
                let _ = self.child.wait();
            }
        }
    }
}

fn pid(raw: u32) -> Result<Pid> {
    i32::try_from(raw)
        .ok()
        .and_then(Pid::from_raw)
        .with_context(|| format!("{raw} is no process id"))
}

/// Sends a signal through a pidfd.
///
/// # Errors
/// When there is no such process or the kernel refuses.
pub fn kill(process: u32, signal: Signal) -> Result<()> {
    let fd = pidfd_open(pid(process)?, PidfdFlags::empty())
        .with_context(|| format!("opening process {process}"))?;
    pidfd_send_signal(&fd, signal)
        .with_context(|| format!("sending {signal:?} to process {process}"))
}

/// Waits until a process has ended (it may still be a zombie); false when it still runs after the limit.
///
/// # Errors
/// When it cannot be watched.
pub fn wait_for_exit(process: u32, limit: Duration) -> Result<bool> {
    let fd = match pidfd_open(pid(process)?, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        Err(error) => return Err(error).with_context(|| format!("opening process {process}")),
    };
    let timeout = Timespec::try_from(limit).context("time limit too long")?;
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("waiting for process {process}"));
            }
        }
    }
}

/// Runs a command to its end and returns its output; a command that takes longer than the limit is killed.
///
/// # Errors
/// When it cannot be started or takes too long.
pub fn run(mut command: Command, limit: Duration) -> Result<Output> {
    let what = describe(&command);
    // Files rather than pipes: nobody needs to read them while the command runs.
    let mut out = tempfile::tempfile().context("making a file for a command's output")?;
    let mut err = tempfile::tempfile().context("making a file for a command's errors")?;
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone().context("duplicating a descriptor")?)
        .stderr(err.try_clone().context("duplicating a descriptor")?);
    let child = command.spawn().with_context(|| format!("starting `{what}`"))?;
    let mut process = Process::adopt(child, what.clone());
    let Some(status) = process.wait(limit)? else { bail!("`{what}` did not end within {limit:?}") };
    let mut output = Output { status, stdout: Vec::new(), stderr: Vec::new() };
    for (file, into) in [(&mut out, &mut output.stdout), (&mut err, &mut output.stderr)] {
        file.rewind()
            .and_then(|()| file.read_to_end(into))
            .with_context(|| format!("reading what `{what}` said"))?;
    }
    Ok(output)
}

/// Like [`run`], but a failing exit status is an error with the command's own words.
///
/// # Errors
/// When it cannot be started, takes too long or fails.
pub fn run_ok(command: Command, limit: Duration) -> Result<Output> {
    let what = describe(&command);
    let output = run(command, limit)?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        bail!("`{what}` failed ({}): {}", output.status, words.trim());
    }
    Ok(output)
}

/// The command line of a command, for messages.
#[must_use]
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_limits() {
        let mut echo = Command::new("echo");
        echo.arg("hi");
        assert_eq!(run_ok(echo, Duration::from_secs(10)).unwrap().stdout, b"hi\n");
        let mut slow = Command::new("sleep");
        slow.arg("60");
        let error = run(slow, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("sleep 60"), "{error}");
        assert!(run_ok(Command::new("false"), Duration::from_secs(10)).is_err());
    }

    #[test]
    fn dropped_processes_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("60");
        let mut process = Process::start(command, &dir.path().join("log")).unwrap();
        let pid = process.pid();
        process.must_run().unwrap();
        drop(process);
        assert!(wait_for_exit(pid, Duration::ZERO).unwrap());
        assert!(kill(pid, Signal::KILL).is_err());
    }
}
