//! fusermount, the set-uid program that mounts and unmounts for ordinary users.
//!
//! What it mounts arrives in the *mailbox*: a socket pair whose one end it is given by the shim in
//! the place of the socket that the FUSE library made. The device stays in there as a message that
//! is only ever looked at, so whoever holds the mailbox holds the device: keeper and supervisor do
//! from the instant in which fusermount has sent it, even if the daemon is dead by then.

pub use belay_sys::may_mount;

use crate::error::{Error, Result, passes};
use crate::process::{Watched, descendants, readable};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use signal_hook::consts::SIGKILL;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program's names, of libfuse 3 and libfuse 2.
pub const NAMES: [&str; 2] = ["fusermount3", "fusermount"];

/// A new mailbox: where fusermount puts the device, and where it is looked at.
///
/// # Errors
/// Those of socketpair(2).
pub fn mailbox() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(|e| {
        Error::system("make", "a socket pair", e, "raise the limit of open files (ulimit -n)")
    })
}

/// How long one is waited for that takes a mount off lazily, and so waits for nobody but whoever
/// serves its folder.
const LIMIT: Duration = Duration::from_secs(5);

/// Has fusermount unmount what `name` in the folder `parent` is, if it is this user's; `lazy` for a
/// mount that is in use. Says whether that was done.
///
/// # Errors
/// If it cannot be started now, as the machine lacks what that takes; `ETIMEDOUT` if a lazy one
/// does not come back.
pub fn unmount(parent: BorrowedFd<'_>, name: &OsStr, lazy: bool) -> io::Result<bool> {
    for program in NAMES {
        let mut command = Command::new(program);
        command.args(["-u", "-q"]).args(lazy.then_some("-z")).arg("--").arg(name);
        // By descriptor: a path may lead elsewhere by now.
        command.current_dir(format!("/proc/self/fd/{}", parent.as_raw_fd()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            // Another thread of this process may have taken the status; then the mount table tells,
            // to which the caller looks.
            Ok(child) => return succeeds(child, lazy.then_some(LIMIT)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if passes(&error) => return Err(error),
            Err(error) => {
                tracing::warn!("cannot unmount {}: {program}: {error}", name.display());
                return Ok(false);
            }
        }
    }
    tracing::warn!(
        "cannot unmount {}: there is no fusermount3 in PATH; install the package fuse3, and unmount it by hand",
        name.display()
    );
    Ok(false)
}

/// Whether a program ends well. One that takes longer than `limit` is killed, and not waited for.
fn succeeds(mut child: Child, limit: Option<Duration>) -> io::Result<bool> {
    if let (Some(limit), Some(process)) = (limit, Watched::open(child.id())) {
        let end = Instant::now() + limit;
        // Signals interrupt that.
        while !readable(process.as_fd(), end.saturating_duration_since(Instant::now())) {
            if Instant::now() >= end {
                let _ = process.signal(SIGKILL);
                return Err(Errno::TIMEDOUT.into());
            }
        }
    }
    Ok(child.wait().is_ok_and(|status| status.success()))
}

/// Whether process `pid` is fusermount, which is no part of the daemon: it may be mounting, or wait
/// for the end of it all to unmount (`-o auto_unmount`).
pub fn is_helper(pid: u32) -> bool {
    // The kernel keeps 15 letters of a name, so of mergerfs-fusermount not all.
    fs::read(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.windows(6).any(|part| part == b"fuserm"))
}

/// The living helpers among what descends from `roots`.
pub fn helpers(roots: &[u32]) -> Vec<Watched> {
    let pids = descendants(roots, &[]).into_iter().filter(|pid| is_helper(*pid));
    pids.filter_map(Watched::open).filter(|process| !process.is_dead()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_come_back_is_killed_and_not_waited_for() {
        let start = |words: &[&str]| {
            let (program, arguments) = words.split_first().expect("a word");
            Command::new(program).args(arguments).spawn().expect("a process")
        };
        let long = start(&["sleep", "1000"]);
        let process = Watched::open(long.id()).expect("alive");
        let error = succeeds(long, Some(Duration::from_millis(1))).expect_err("it sleeps");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::TIMEDOUT));
        assert!(readable(process.as_fd(), LIMIT), "it is killed");
        for limit in [None, Some(LIMIT)] {
            assert!(succeeds(start(&["true"]), limit).expect("ended"));
            assert!(!succeeds(start(&["false"]), limit).expect("ended"));
        }
    }

    #[test]
    fn helpers_are_told_by_their_name() {
        assert!(!is_helper(std::process::id()));
        assert!(helpers(&[std::process::id()]).is_empty());
    }
}
