//! The mailbox: where fusermount puts the device of a mount that it makes for an ordinary user.
//!
//! libfuse asks the set-uid program fusermount to mount, and names a socket (`_FUSE_COMMFD`) that
//! the device is to come back through. The shim names the mailbox instead, a socket pair of belay's.
//! The device stays in it as an unread message: whoever holds the mailbox holds the device, from the
//! instant in which fusermount sends it, whatever becomes of the daemon. It is looked at
//! (`MSG_PEEK`), never taken out; the supervisor does the same. The daemon is handed what was found
//! there through the socket that it waits at.

use crate::start::Shim;
use crate::{descriptors, real};
use belay_recorder::control::flags;
use libc::c_int;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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
    fn wait(&self, helper: &OwnedFd) -> Option<OwnedFd> {
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

    /// Puts the end for fusermount in the place of the socket `comm`, in a child about to become it.
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

/// Sends `device` through the socket `comm` in the way of fusermount: one byte with it.
fn send(comm: c_int, device: BorrowedFd<'_>) -> bool {
    // SAFETY: the caller's open socket (seen to be one), used during this call only.
    let socket = unsafe { BorrowedFd::borrow_raw(comm) };
    let fds = [device];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds))
        && sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL).is_ok()
}

impl Shim {
    /// Waits for fusermount (`helper`) and passes on to the daemon, through `comm`, what it sent.
    pub(crate) fn relay(&self, helper: &OwnedFd, comm: c_int) -> bool {
        let Some(device) = self.mailbox.wait(helper) else { return false };
        self.control().raise(flags::MOUNTED);
        self.tell();
        send(comm, device.as_fd())
    }

    /// Gives the daemon the device that is held, through `comm`, as if it had been mounted now.
    pub(crate) fn hand_out(&self, comm: c_int) -> bool {
        // What lies in the mailbox by the time of a successor may have come from a daemon that had turned against belay.
        match self.mailbox.look().filter(|_| self.host.generation() == 0) {
            Some(device) => send(comm, device.as_fd()),
            None => send(comm, self.device.as_fd()),
        }
    }

    /// The daemon received the descriptor `fd`: if it is the device, it is treated as such.
    pub(crate) fn received(&self, fd: c_int) {
        // SAFETY: `fd` has just been received by the calling thread and is open during this call.
        let received = unsafe { BorrowedFd::borrow_raw(fd) };
        if !belay_sys::mailbox::is_fuse(received) {
            return;
        }
        let errno = real::errno();
        if self.is_of_another(fd) {
            self.tell_another(b"");
            real::set_errno(errno);
            return;
        }
        if !self.mailbox.adopted.swap(true, Relaxed) {
            // It came past the mailbox (from a helper of another name): it is held all the same.
            if self.mailbox.look().is_none() {
                send(self.mailbox.post.as_raw_fd(), received);
            }
            // From now on the shim's own device is that of the mount. The number stays, so nobody
            // who uses it has to know.
            // SAFETY: both are open; dup3 puts the new description behind the number in one step.
            unsafe { libc::dup3(fd, self.device.as_raw_fd(), libc::O_CLOEXEC) };
            self.control().raise(flags::MOUNTED);
            self.tell();
        } else if self.host.is_ready() {
            real::set_errno(errno);
            return; // it serves, so it has what it needs
        }
        descriptors::add(fd);
        self.claim_mount(Some(fd));
        real::set_errno(errno);
    }
}
