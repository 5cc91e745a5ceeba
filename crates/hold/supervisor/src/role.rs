//! Belay's own processes: how one starts another, with all that it needs, and what each checks
//! first.

use crate::config::{Config, VERSION};
use crate::error::{Error, Result};
use crate::handover::{Descriptors, Link, Note};
use crate::text::OsText;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The exit code of a supervisor that could not begin for want of something that the machine may
/// have in a moment (EX_TEMPFAIL of sysexits.h). It counts for nothing.
pub const LACKS: i32 = 75;

/// Makes this process the parent of all orphans among its descendants.
///
/// # Errors
/// Those of prctl(2).
pub fn become_subreaper() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| Error::system("become", "a subreaper", e, "use Linux 3.4 or later"))
}

/// Starts this very program again with the hidden subcommand `role`, the other end of a link as its
/// standard input, and sends it `hello` with all descriptors. `holds`: what it holds
/// ([`Config::holds`]).
///
/// # Errors
/// Those of fork and exec, and of sending.
pub fn start_self(
    role: &str,
    verbose: u8,
    holds: Option<&OsText>,
    hello: &Note,
    fds: &Descriptors,
) -> Result<(Link, u32)> {
    let (ours, theirs) = Link::pair()?;
    let wrap = |e: std::io::Error| {
        Error::system("start", format!("belay's {role}"), e, "raise the limit of processes")
    };
    // Sent first: the message waits in the socket, so the new process never waits for us.
    ours.send_descriptors(hello, fds).map_err(|e| wrap(e.into()))?;
    let mut command = self_as(role, verbose);
    // For people, who see it in the list of processes.
    command.args(holds.map(|holds| holds.0.as_os_str()));
    let child = command.stdin(Stdio::from(theirs.into_fd())).spawn().map_err(wrap)?;
    Ok((ours, child.id()))
}

/// This very program with the hidden subcommand `role`, even if its file was replaced or removed
/// meanwhile.
pub fn self_as(role: &str, verbose: u8) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("belay").arg(role);
    command.args(std::iter::repeat_n("-v", usize::from(verbose)));
    command
}

/// Checks that a configuration was made by this version of belay.
///
/// # Errors
/// If it was not.
pub fn check_version(config: &Config) -> Result<()> {
    if config.version == VERSION {
        return Ok(());
    }
    Err(Error::refused(
        "configuration",
        format!("it has version {}, this program needs {VERSION}", config.version),
        "use one version of belay for all processes of a mount",
    ))
}
