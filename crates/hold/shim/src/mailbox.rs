//! The mailbox: where fusermount puts the device of a mount that it makes for an ordinary user.
//!
//! libfuse asks the set-uid program fusermount to mount, and names a socket (`_FUSE_COMMFD`) that
//! the device is to come back through. The shim names the mailbox instead, a socket pair of
//! belay's. The device stays in it as an unread message: whoever holds the mailbox holds the
//! device, from the instant in which fusermount sends it, whatever becomes of the daemon. It is
//! looked at (`MSG_PEEK`), never taken out; the supervisor does the same. The daemon is handed what
//! was found there through the socket that it waits at.

use libc::c_int;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Both ends of the mailbox.
pub(crate) struct Mailbox {
    /// What fusermount is given.
    post: OwnedFd,
    /// Where its message is looked at.
    mail: OwnedFd,
    /// The device is known: the mount is there, and no other is made.
    adopted: AtomicBool,
}

impl Mailbox {
    /// `post` and `mail` as the supervisor left them for generation `generation`.
    pub(crate) fn new(post: OwnedFd, mail: OwnedFd, generation: u32) -> Self {
        let mailbox = Self { post, mail, adopted: AtomicBool::new(generation > 0) };
        // A first daemon may have been killed just after fusermount had mounted for it.
        if mailbox.look().is_some() {
            mailbox.adopted.store(true, Relaxed);
        }
        mailbox
    }

    /// Whether there is nothing to mount any more: the daemon gets the device that is held.
    pub(crate) fn is_settled(&self) -> bool {
        self.adopted.load(Relaxed)
    }

    /// The daemon has received the device: nothing is to be mounted any more. Whether that was so
    /// before.
    pub(crate) fn adopt(&self) -> bool {
        self.adopted.swap(true, Relaxed)
    }

    /// The numbers of both ends.
    pub(crate) fn numbers(&self) -> [RawFd; 2] {
        [self.post.as_raw_fd(), self.mail.as_raw_fd()]
    }

    /// The end that things are put in by.
    pub(crate) fn post(&self) -> RawFd {
        self.post.as_raw_fd()
    }

    /// The daemon has mounted by itself: a device that it receives is another mount's.
    pub(crate) fn settle(&self) {
        self.adopted.store(true, Relaxed);
    }

    /// The device in the mailbox, if it has come.
    pub(crate) fn look(&self) -> Option<OwnedFd> {
        belay_sys::mailbox::look(self.mail.as_fd())
    }

    /// Whether something has come.
    pub(crate) fn has_mail(&self) -> bool {
        belay_sys::mailbox::has_mail(self.mail.as_fd())
    }

    /// Waits until something has come, or that process has ended.
    pub(crate) fn wait_for(&self, process: &OwnedFd) {
        let mut fds = [PollFd::new(&self.mail, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        let _ = poll(&mut fds, None);
    }

    /// Waits until the device has come or `helper` (a process descriptor) has ended without it.
    pub(crate) fn wait(&self, helper: &OwnedFd) -> Option<OwnedFd> {
        loop {
            let mut fds =
                [PollFd::new(&self.mail, PollFlags::IN), PollFd::new(helper, PollFlags::IN)];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                return None;
            }
            let ended = !fds[1].revents().is_empty();
            let device = self.look();
            if device.is_some() || ended {
                return device;
            }
        }
    }

    /// A duplicate of the end for fusermount that survives exec; to be closed by the caller.
    pub(crate) fn post_for_child(&self) -> c_int {
        // SAFETY: duplicates a live descriptor of ours; changes nothing else.
        unsafe { libc::fcntl(self.post.as_raw_fd(), libc::F_DUPFD, 3) }
    }

    /// Puts the end for fusermount in the place of the socket `comm`, in a child about to become
    /// it.
    pub(crate) fn replace(&self, comm: c_int) -> bool {
        // SAFETY: `comm` is the child's socket to its parent, which it leaves to fusermount anyway;
        // nothing else in this single-threaded child owns that number.
        unsafe { libc::dup2(self.post.as_raw_fd(), comm) >= 0 }
    }
}

/// Watches the process `pid`.
pub(crate) fn watch(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}
