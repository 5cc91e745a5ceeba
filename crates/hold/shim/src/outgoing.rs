//! Writes to the FUSE device: the daemon's replies and notifications.

use crate::argument::Input;
use crate::real;
use crate::shim::Shim;
use libc::c_int;
use std::borrow::Cow;

/// Bytes of a reply's header (fuse_out_header).
const HEADER: usize = 16;

impl Shim {
    /// A message that the daemon writes to the device `fd`, as the kernel would see it. `parts` are
    /// its own, of this call.
    #[inline]
    pub(crate) fn write_vectored(&self, fd: c_int, parts: &[Input<'_>]) -> isize {
        let (iov, count) = (parts.as_ptr(), parts.len());
        // SAFETY: a list of memory that can be read, as its type says, laid out as iovecs.
        let pass = || unsafe { belay_sys::raw::syscall(libc::SYS_writev, fd, iov, count) as isize };
        if parts.iter().all(|part| part.len() == 0) {
            return pass(); // that is no message, as the kernel says
        }
        // As libfuse does it: the header, and what it is about. Nothing is copied to look at it.
        match parts {
            [head] if head.len() == HEADER => {
                self.outgoing((head.bytes(), HEADER), || Cow::Borrowed(&[]), pass)
            }
            [head, body] if head.len() == HEADER => {
                let total = HEADER + body.len();
                self.outgoing((head.bytes(), total), || Cow::Borrowed(body.bytes()), pass)
            }
            _ => {
                let mut head = whole(parts);
                let total = head.len();
                let body = head.split_off(HEADER.min(total));
                self.outgoing((&head, total), || Cow::Owned(body), pass)
            }
        }
    }

    /// Takes a message from the daemon: `head` is its header, `total` its length, `body` gives what
    /// is behind the header, `pass` writes it to the device as it is. errno stays, if that
    /// succeeds.
    #[inline]
    pub(crate) fn outgoing<'a>(
        &self,
        (head, total): (&[u8], usize),
        body: impl FnOnce() -> Cow<'a, [u8]>,
        pass: impl Fn() -> isize,
    ) -> isize {
        crate::dying::safepoint();
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

/// Copies all that the parts hold.
fn whole(parts: &[Input<'_>]) -> Vec<u8> {
    let mut message = Vec::with_capacity(parts.iter().map(Input::len).sum());
    for part in parts {
        message.extend_from_slice(part.bytes());
    }
    message
}
