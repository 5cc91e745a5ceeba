//! Mailboxes: socket pairs in which a descriptor stays as a message that is only looked at, so
//! whoever holds the mailbox holds what is in it.
//!
//! Through one of them fusermount hands over the device of a mount that it makes. In the other a
//! daemon leaves its image: a descriptor is a capability, what its holder may do whoever it is; so
//! what is left there lets belay do no more than the daemon could, though the daemon may be the
//! enemy by then. Only the first message counts.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Whether `fd` is a description of /dev/fuse (10:229 on every Linux).
pub fn is_fuse(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && stat.st_rdev == rustix::fs::makedev(10, 229)
    })
}

/// The device in the mailbox `mail`, if fusermount has put one there; it also stays there. Anything
/// else that may have been put there is not taken for one, and may make the caller wait for ever.
pub fn look(mail: BorrowedFd<'_>) -> Option<OwnedFd> {
    look_for(mail, is_fuse)
}

/// A mailbox for an image: where it is left, and where it is looked at.
///
/// # Errors
/// Those of socketpair(2).
pub fn for_image() -> Result<(OwnedFd, OwnedFd), Errno> {
    // Messages, so that one that is no image is not taken for a part of the next.
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Leaves `image` in a mailbox. Waits for nobody.
///
/// # Errors
/// Those of sendmsg(2): `EAGAIN` if there is no room, which means that something is there;
/// `ENOTSOCK` if the number of the mailbox has come to mean something else.
pub fn leave(post: BorrowedFd<'_>, image: BorrowedFd<'_>) -> Result<(), Errno> {
    if sockopt::socket_type(post)? != SocketType::SEQPACKET {
        return Err(Errno::NOTSOCK);
    }
    let images = [image];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&images)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(post, &[IoSlice::new(&[0])], &mut control, flags).map(drop)
}

/// The image in its mailbox, if what was left there first is one; it also stays there. The caller
/// may have to wait for whoever serves what is there.
pub fn look_for_image(mail: BorrowedFd<'_>) -> Option<OwnedFd> {
    look_for(mail, is_image)
}

/// Whether `fd` is a regular file or a disk, and open for writing.
pub fn is_image(fd: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    let writes = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| {
        !flags.contains(OFlags::PATH) && flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    });
    matches!(kind, Ok(FileType::RegularFile | FileType::BlockDevice)) && writes
}

/// Bytes of a message of the kernel's with one descriptor, without what would make room for
/// another: CMSG_LEN(4).
const ONE: usize = 20;

/// Others that somebody sends along are not received: who has received one must close it, and
/// close(2) may wait for whoever serves the file.
#[repr(align(8))]
struct RoomForOne([MaybeUninit<u8>; ONE]);

/// Whether something is in the mailbox `mail`. It is not received, so this never waits.
pub fn has_mail(mail: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(mail, PollFlags::IN)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&none)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// What was not wanted is closed, which may wait for whoever serves it: so who must answer has
/// another process look.
fn look_for(mail: BorrowedFd<'_>, is_wanted: fn(BorrowedFd<'_>) -> bool) -> Option<OwnedFd> {
    let mut room = RoomForOne([MaybeUninit::uninit(); ONE]);
    let mut control = RecvAncillaryBuffer::new(&mut room.0);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(mail, &mut [IoSliceMut::new(&mut [0])], &mut control, flags).ok()?;
    let mut found = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            found = found.or(rights.into_iter().find(|fd| is_wanted(fd.as_fd())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

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

    #[test]
    fn no_more_than_one_is_received() {
        let (to, from) = pair();
        assert!(!has_mail(from.as_fd()));
        let [null, file] =
            ["/dev/null", "/proc/self/stat"].map(|path| File::open(path).expect("open"));
        let fds = [null.as_fd(), file.as_fd(), null.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&to, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("send");
        assert!(has_mail(from.as_fd()));
        let kind = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| stat.st_rdev);
        let null_kind = kind(null.as_fd());
        assert!(look_for(from.as_fd(), |_| true).is_some_and(|fd| kind(fd.as_fd()) == null_kind));
        assert!(
            look_for(from.as_fd(), |fd| rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_rdev == 0))
                .is_none()
        );
    }

    #[test]
    fn only_what_was_left_first_and_can_be_written_to_is_an_image() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("image");
        std::fs::write(&path, "x").expect("write");
        let open = |writes| File::options().read(true).write(writes).open(&path).expect("open");
        let path_only = rustix::fs::open(&path, OFlags::PATH, rustix::fs::Mode::empty());
        let null = File::options().write(true).open("/dev/null").expect("null");
        let refused: [OwnedFd; 3] = [open(false).into(), path_only.expect("open"), null.into()];
        for fd in refused {
            let (to, from) = for_image().expect("pair");
            assert!(look_for_image(from.as_fd()).is_none());
            leave(to.as_fd(), fd.as_fd()).expect("leave");
            leave(to.as_fd(), open(true).as_fd()).expect("leave");
            assert!(look_for_image(from.as_fd()).is_none(), "what comes later does not count");
        }
        let (to, from) = for_image().expect("pair");
        leave(to.as_fd(), open(true).as_fd()).expect("leave");
        let other = File::create(dir.path().join("other")).expect("create");
        while leave(to.as_fd(), other.as_fd()).is_ok() {}
        drop(to);
        for _ in 0..3 {
            let found = look_for_image(from.as_fd()).expect("it stays there");
            assert_eq!(rustix::fs::fstat(found).expect("stat").st_size, 1);
        }
    }
}
