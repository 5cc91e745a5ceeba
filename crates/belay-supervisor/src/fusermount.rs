//! fusermount, the set-uid program that mounts and unmounts for ordinary users.
//!
//! What it mounts arrives in the *mailbox*: a socket pair whose one end it is given by the shim in
//! the place of the socket that the FUSE library made. The device stays in there as a message that
//! is only ever looked at, so whoever holds the mailbox holds the device: keeper and supervisor do
//! from the instant in which fusermount has sent it, even if the daemon is dead by then.

use crate::error::{Error, Result};
use crate::process::{Watched, descendants};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FileType;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use rustix::thread::CapabilitySet;
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program's names, of libfuse 3 and libfuse 2.
pub const NAMES: [&str; 2] = ["fusermount3", "fusermount"];

/// Whether this process may mount by itself.
pub fn may_mount() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// A new mailbox: where fusermount puts the device, and where it is looked at.
///
/// # Errors
/// Those of socketpair(2).
pub fn mailbox() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(|e| {
        Error::system("make", "a socket pair", e, "raise the limit of open files (ulimit -n)")
    })
}

/// The device in the mailbox `mail`, if fusermount has put one there. Anything else that a daemon
/// may have put there is not taken for one.
pub fn look(mail: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(mail, &mut [IoSliceMut::new(&mut [0])], &mut control, flags).ok()?;
    let mut found = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            found = found.or(rights.into_iter().find(|fd| is_fuse(fd.as_fd())));
        }
    }
    found
}

fn is_fuse(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == rustix::fs::makedev(10, 229)
    })
}

/// Unmounts `path` by fusermount; `lazy` for a mount that is in use. Says whether it is gone.
pub fn unmount(path: &Path, lazy: bool) -> bool {
    for name in NAMES {
        let mut command = Command::new(name);
        command.args(["-u", "-q"]).args(lazy.then_some("-z")).arg("--").arg(path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { continue };
        // Another thread of this process may have taken the status: the mount table tells as well.
        return match child.wait() {
            Ok(status) => status.success(),
            Err(_) => crate::mounts::at(path).is_none_or(|mount| !mount.is_fuse()),
        };
    }
    tracing::warn!("cannot unmount {}: there is no fusermount3 in PATH", path.display());
    false
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
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;

    fn post(to: &OwnedFd, fd: BorrowedFd<'_>) {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(to, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("send");
    }

    #[test]
    fn only_a_device_is_taken_from_the_mailbox() {
        let (to, from) = mailbox().expect("socketpair");
        assert!(look(from.as_fd()).is_none());
        let null = fs::File::open("/dev/null").expect("null");
        post(&to, null.as_fd());
        assert!(look(from.as_fd()).is_none(), "not every device is /dev/fuse");
        let Ok(fuse) = fs::File::options().read(true).write(true).open("/dev/fuse") else { return };
        let (to, from) = mailbox().expect("socketpair");
        post(&to, fuse.as_fd());
        drop((to, fuse));
        for _ in 0..3 {
            assert!(look(from.as_fd()).is_some(), "it stays there");
        }
    }

    #[test]
    fn helpers_are_told_by_their_name() {
        assert!(!is_helper(std::process::id()));
        assert!(helpers(&[std::process::id()]).is_empty());
    }
}
