//! A process that asks a mount for something that changes nothing.
//!
//! Invariant: who asks uses the mount, and keeps others from unmounting it. So it ends with whoever
//! wants to know.

use crate::error::{Error, Result};
use crate::text::escaped;
use rustix::fs::statfs;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The command that asks the mount there (statfs(2)), and may hang in that. It ends with the thread
/// that starts it. It is this very program: a search for another one might lead into that mount,
/// and would hold up whoever starts it.
pub fn command(mountpoint: &OsStr) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("belay").arg("ask").arg(std::process::id().to_string()).arg("--").arg(mountpoint);
    command
}

/// What such a process does, for the process `parent`.
///
/// # Errors
/// Those of prctl(2) and statfs(2).
pub fn ask(parent: u32, mountpoint: &Path) -> Result<()> {
    let failed =
        |error| Error::system("ask", escaped(mountpoint.as_os_str()), error, "see `belay status`");
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)?;
    // It may have ended before that.
    let by = getppid().map(Pid::as_raw_nonzero);
    if by.is_none_or(|by| by.get().unsigned_abs() != parent) {
        return Ok(());
    }
    statfs(mountpoint).map(drop).map_err(failed)
}
