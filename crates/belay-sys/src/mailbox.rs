//! The mailbox: a socket pair through which fusermount hands over the device of a mount that it
//! makes. The device stays in it as a message that is only looked at, so whoever holds the mailbox
//! holds the device.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FileType;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;

/// Whether `fd` is a description of /dev/fuse (10:229 on every Linux).
pub fn is_fuse(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == rustix::fs::makedev(10, 229)
    })
}

/// The device in the mailbox `mail`, if fusermount has put one there; it also stays there. Anything
/// else that may have been put there is not taken for one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, sendmsg, socketpair,
    };
    use std::fs::File;
    use std::io::IoSlice;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("socketpair")
    }

    fn post(to: &OwnedFd, fd: BorrowedFd<'_>) {
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(to, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("send");
    }

    #[test]
    fn only_a_device_is_taken_from_the_mailbox() {
        let (to, from) = pair();
        assert!(look(from.as_fd()).is_none());
        let null = File::open("/dev/null").expect("null");
        post(&to, null.as_fd());
        assert!(look(from.as_fd()).is_none(), "not every device is /dev/fuse");
        let Ok(fuse) = File::options().read(true).write(true).open("/dev/fuse") else { return };
        let (to, from) = pair();
        post(&to, fuse.as_fd());
        drop((to, fuse));
        for _ in 0..3 {
            assert!(look(from.as_fd()).is_some(), "it stays there");
        }
    }
}
