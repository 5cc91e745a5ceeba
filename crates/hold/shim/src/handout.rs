//! How the daemon comes by the held device where fusermount mounts for it: it is handed out through
//! the socket that the daemon waits at.

use crate::shim::Shim;
use crate::{descriptors, real};
use belay_recorder::control::Flags;
use libc::c_int;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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
    /// Waits for fusermount (`helper`; `None` if it has ended, and somebody has reaped it) and
    /// passes on to the daemon, through `comm`, what it sent.
    pub(crate) fn relay(&self, helper: Option<&OwnedFd>, comm: c_int) -> bool {
        let device = match helper {
            Some(helper) => self.mailbox.wait(helper),
            None => self.mailbox.look(),
        };
        let Some(device) = device else { return false };
        self.control().raise(Flags::MOUNTED);
        self.tell();
        send(comm, device.as_fd())
    }

    /// Gives the daemon the device that is held, through `comm`, as if it had been mounted now.
    pub(crate) fn hand_out(&self, comm: c_int) -> bool {
        // What lies in the mailbox by the time of a successor may have come from a daemon that had
        // turned against belay.
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
        if !self.mailbox.adopt() {
            // It came past the mailbox (from a helper of another name): it is held all the same.
            if self.mailbox.look().is_none() {
                send(self.mailbox.post(), received);
            }
            // From now on the shim's own device is that of the mount. The number stays, so nobody
            // who uses it has to know. SAFETY: both are open; dup3 puts the new description behind
            // the number in one step. libc's own: this library's keeps the daemon from that.
            unsafe { real::dup3(fd, self.device.as_raw_fd(), libc::O_CLOEXEC) };
            self.control().raise(Flags::MOUNTED);
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
