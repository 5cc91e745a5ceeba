//! mount(2), umount2(2) and recvmsg(2) by way of the C library, so that what stands in front of it
//! sees them: in a process that the shim is preloaded into they are a daemon's. rustix calls the
//! kernel without it.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ffi::{CStr, c_ulong};
use std::io;

/// Mounts a file system.
///
/// # Errors
/// Those of mount(2).
pub fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: c_ulong,
    data: &CStr,
) -> io::Result<()> {
    let (source, target, kind) = (source.as_ptr(), target.as_ptr(), kind.as_ptr());
    // SAFETY: live strings, which the call only reads.
    match unsafe { libc::mount(source, target, kind, flags, data.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unmounts one.
///
/// # Errors
/// Those of umount2(2).
pub fn unmount(target: &CStr, flags: i32) -> io::Result<()> {
    // SAFETY: a live string, which the call only reads.
    match unsafe { libc::umount2(target.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives one descriptor from a socket; `None` if none has come with what is there. Does not
/// wait.
///
/// # Errors
/// Those of recvmsg(2).
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    /// Bytes of one descriptor with its header, without what would make room for another:
    /// CMSG_LEN(4).
    const ONE: usize = 20;
    /// Where the kernel wants it to lie.
    #[repr(C, align(8))]
    struct Room([u8; 24]);
    let (mut byte, mut room) = (0_u8, Room([0; 24]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a zeroed header of a message is a valid value of that plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut room).cast();
    message.msg_controllen = ONE;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: a live header, whose parts live as long and are as long as they say.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the header was just filled.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so a whole header lies there, within `room`.
    let kind = unsafe { *header };
    if kind.cmsg_level != libc::SOL_SOCKET || kind.cmsg_type != libc::SCM_RIGHTS {
        return Ok(None);
    }
    // SAFETY: arithmetic on the header's place.
    let data = unsafe { libc::CMSG_DATA(header) }.cast::<i32>();
    // SAFETY: a message with rights has one descriptor at least, and it lies behind its header.
    let number = unsafe { data.read_unaligned() };
    // SAFETY: the kernel has just made this descriptor for the caller. The room is for one, so
    // there is no other.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn one_descriptor_is_received() {
        let pair = || std::os::unix::net::UnixStream::pair().expect("a pair");
        let (to, from) = pair();
        assert!(receive(from.as_fd()).is_err(), "nothing is there");
        let file = std::fs::File::open("/dev/null").expect("null");
        let fds = [file.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let byte = [io::IoSlice::new(&[0])];
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&to, &byte, &mut control, flags).expect("send");
        let found = receive(from.as_fd()).expect("receive").expect("a descriptor");
        let kind = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| stat.st_rdev);
        assert_eq!(kind(found.as_fd()), kind(file.as_fd()));
        rustix::io::write(&to, b"x").expect("write");
        assert!(receive(from.as_fd()).expect("receive").is_none());
    }

    #[test]
    fn what_is_not_there_is_neither_mounted_nor_unmounted() {
        let place = c"/no/such/place";
        assert!(mount(c"x", place, c"fuse", 0, c"").is_err());
        assert!(unmount(place, 0).is_err());
    }
}
