//! A machine as a namespace of processes, all of which end in one instant.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use belay_fixtures::process::{self, Process, children};
use rustix::process::Signal;

use super::judge::Listener;
use super::serve::Power;

const LIMIT: Duration = Duration::from_secs(60);

/// What starts this program in a machine; its arguments are still to come.
pub fn command() -> Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "--"]);
    // Process 1 must be one that waits for nothing: the others are killed when it has ended.
    command.args(["sh", "-c", "\"$@\" & wait", "sh"]);
    command.arg(std::env::current_exe().context("finding this program's own path")?);
    Ok(command)
}

/// Starts a machine, and listens to it. What is not meant for that goes to a log.
pub fn start(mut command: Command, log: &Path, power: &Arc<Power>) -> Result<(Process, Listener)> {
    let log = File::create(log).context("creating a log")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let child = command.spawn().context("starting unshare (of util-linux)")?;
    let mut outer = Process::adopt(child, "unshare");
    let output = outer.child().stdout.take().context("no output to read")?;
    Ok((outer, Listener::start(output, power)))
}

/// Kills the machine, and waits until nothing of it is left.
pub fn kill(outer: &mut Process) -> Result<()> {
    let pid = outer.pid();
    while outer.exited()?.is_none() {
        if let Some(init) = children(pid).first().copied() {
            // Process 1 of a namespace: its end is that of all others.
            process::kill(init, Signal::KILL)?;
            ensure!(process::wait_for_exit(init, LIMIT)?, "the machine did not end");
            break;
        }
        std::thread::yield_now();
    }
    outer.signal(Signal::KILL)?;
    ensure!(outer.wait(LIMIT)?.is_some(), "unshare did not end");
    Ok(())
}
