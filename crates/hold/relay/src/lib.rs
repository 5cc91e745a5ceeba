//! The relay: a process between the device and a daemon that no library can be loaded into, because
//! it is linked statically or calls the kernel without the C library, as Go programs do.
//!
//! To the supervisor it *is* the daemon. It is started in the daemon's place, with the shim
//! preloaded into it like into any other: so lease, recorder and session, the mount, mailbox and
//! mount namespace are what they are for all daemons, and there is no second host of the session to
//! differ from the first. What is here is a small FUSE program above that: it opens `/dev/fuse`,
//! mounts, and passes each message on to the real daemon, which is its child, and each answer back.
//! When the daemon ends the relay ends, in the same way; when the relay ends the kernel kills the
//! daemon. So a life is the two together.
//!
//! | module | answers |
//! | --- | --- |
//! | [`daemon`] | how the daemon is started, waited for, and followed into its end |
//! | [`mounting`] | what becomes of the daemon's calls to mount and unmount |
//! | [`fusermount`] | how an ordinary user's is mounted |
//! | [`view`] | what the daemon sees at its mountpoint once it has mounted |
//! | [`standin`] | what an ordinary user's successor finds at its mountpoint before that |
//! | [`leading`], [`registers`] | how it is led there |
//! | [`finding`] | where a path leads, if somebody answers |
//! | [`ending`] | what the daemon sees when the mount has gone |
//! | [`memory`] | what such a call points to |
//! | [`passing`] | how messages come from the device to the daemon and back |
//! | [`init`] | what the daemon may not negotiate |
//!
//! The daemon's device is one end of a socket pair that keeps the boundaries of messages. How it
//! comes to have it: it opens and mounts a device of its own, or has fusermount3 do so, as ever.
//! The call to mount(2) is told to the relay (seccomp_unotify(2)), which mounts the held device
//! instead, and puts the socket in the place of the descriptor that the call names. No path, no
//! variable of the environment and no name of a helper plays a part, so it is the same for all of
//! them.
#![forbid(unsafe_code)]

mod daemon;
mod ending;
mod finding;
mod fusermount;
mod init;
mod leading;
mod memory;
mod mounting;
mod passing;
mod registers;
mod standin;
mod view;

pub use standin::Standin;

use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// What the relay stands in front of.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// Its program.
    pub program: PathBuf,
    /// A descriptor that is to be closed when it is started: `program` leads to it.
    pub held: Option<RawFd>,
    /// Its command line, its name first.
    pub command: Vec<OsString>,
    /// What it is to find at its mountpoint until it has mounted, if that is not for its mount
    /// table to say.
    pub standin: Option<Standin>,
}

/// Starts the daemon, and stands before it until it ends. Then this process has ended as well.
///
/// # Errors
/// Why it cannot be started.
pub fn run(daemon: &Daemon) -> io::Result<std::convert::Infallible> {
    daemon::run(daemon)
}
