//! Writes to the FUSE device: the daemon's replies and notifications.

use crate::real;
use crate::shim::Shim;
use libc::{c_int, iovec};
use std::borrow::Cow;

/// Bytes of a reply's header (fuse_out_header).
const HEADER: usize = 16;

impl Shim {
    /// A message that the daemon writes to the device `fd`, as the kernel would see it. `parts` are its own, of this call.
    #[inline]
    pub(crate) fn write_vectored(&self, fd: c_int, parts: &[iovec]) -> isize {
        let (iov, count) = (parts.as_ptr(), parts.len());
        // SAFETY: the daemon's own arguments, passed on unchanged.
        let pass = || unsafe { belay_sys::raw::syscall(libc::SYS_writev, fd, iov, count) as isize };
        if parts.iter().all(|part| part.iov_len == 0) {
            return pass(); // that is no message, as the kernel says
        }
        // As libfuse does it: the header, and what it is about. Nothing is copied to look at it.
        match parts {
            [head] if head.iov_len == HEADER => {
                // SAFETY: of the call that this is part of, and used in it only.
                let head = unsafe { bytes_of(head) };
                self.outgoing((head, HEADER), || Cow::Borrowed(&[]), pass)
            }
            [head, body] if head.iov_len == HEADER => {
                let total = HEADER + body.iov_len;
                // SAFETY: as above.
                let head = unsafe { bytes_of(head) };
                // SAFETY: as above.
                let body = || Cow::Borrowed(unsafe { bytes_of(body) });
                self.outgoing((head, total), body, pass)
            }
            _ => {
                let mut head = whole(parts);
                let total = head.len();
                let body = head.split_off(HEADER.min(total));
                self.outgoing((&head, total), || Cow::Owned(body), pass)
            }
        }
    }

    /// Takes a message from the daemon: `head` is its header, `total` its length, `body` gives what is behind the header, `pass` writes it
    /// to the device as it is. errno stays, if that succeeds.
    #[inline]
    pub(crate) fn outgoing<'a>(
        &self,
        (head, total): (&[u8], usize),
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> isize,
    ) -> isize {
        crate::dying::checkpoint();
        let before = real::errno();
        let pass = || usize::try_from(pass()).map_err(|_| real::errno());
        let (written, errno) = match self.host.outgoing(self, (head, total), body, pass) {
            Ok(written) => (written as isize, before),
            Err(errno) => (-1, errno),
        };
        real::set_errno(errno);
        written
    }
}

/// What an iovec of the daemon's writev(2) points to.
///
/// # Safety
/// It is one of a call that has not returned yet, and is not kept beyond that: until then the daemon leaves `iov_len` bytes there to be
/// read.
unsafe fn bytes_of(part: &iovec) -> &[u8] {
    if part.iov_len == 0 {
        return &[];
    }
    // SAFETY: readable, as the caller vouches; and not null, or the kernel's look at it would fail as well.
    unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) }
}

/// Copies all that the iovecs hold.
fn whole(parts: &[iovec]) -> Vec<u8> {
    let mut message = Vec::with_capacity(parts.iter().map(|part| part.iov_len).sum());
    for part in parts {
        // SAFETY: of the call that its caller is part of; copied here.
        message.extend_from_slice(unsafe { bytes_of(part) });
    }
    message
}
