//! Running a program that must not outlive its workload.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_fixtures::process::{Process, describe};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often it is looked whether the run is to end early.
const LOOK: Duration = Duration::from_millis(50);

/// Up to when a workload may run.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Then it counts as hanging.
    pub deadline: Instant,
    /// Asked again and again: true ends the run early, as an error.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl Watch<'static> {
    /// Ends only when this time is over.
    #[must_use]
    pub fn limit(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, stop: &|| false }
    }
}

impl Watch<'_> {
    /// An error if the run is to end.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self) -> Result<()> {
        ensure!(!(self.stop)(), "ended early, as asked for");
        ensure!(Instant::now() < self.deadline, "it took longer than its time limit");
        Ok(())
    }
}

/// Runs a command to its end, and returns what it wrote to standard output and standard error,
/// which goes to `log`.
///
/// # Errors
/// When it fails, or has to be ended: then all of its process group are killed.
pub fn run(command: Command, log: &Path, watch: &Watch<'_>) -> Result<String> {
    let what = describe(&command);
    let mut process = Process::start(command, log)?;
    let status = loop {
        if let Some(status) = process.wait(LOOK)? {
            break status;
        }
        if let Err(why) = watch.check() {
            end_group(process.pid());
            return Err(why).with_context(|| format!("running `{what}`"));
        }
    };
    let text = std::fs::read(log).with_context(|| format!("reading what `{what}` said"))?;
    if !status.success() {
        bail!("`{what}` failed ({status}){}", process.tail());
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Kills a group whose leader is a child that was not waited for yet, so that the number is still
/// the group's.
fn end_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn words_and_failures_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let watch = Watch::limit(Duration::from_secs(20));
        assert_eq!(run(shell("echo out; echo err >&2"), &log, &watch).unwrap(), "out\nerr\n");
        let error = run(shell("echo because; exit 3"), &log, &watch).unwrap_err().to_string();
        assert!(error.contains("because"), "{error}");
    }

    #[test]
    fn nothing_of_a_program_outlives_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let pid = dir.path().join("pid");
        // The end is asked for when the grandchild is known to be there.
        let stop = || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
        let deadline = Instant::now() + Duration::from_secs(20);
        let script = format!("sleep 60 & echo $! > {}; wait", pid.display());
        let error = run(shell(&script), &log, &Watch { deadline, stop: &stop }).unwrap_err();
        assert!(format!("{error:#}").contains("as asked for"), "{error:#}");
        let child: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        assert!(
            belay_fixtures::process::wait_for_exit(child, Duration::from_secs(20)).unwrap(),
            "the grandchild still runs"
        );
    }
}
