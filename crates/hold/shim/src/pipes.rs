//! Splice: libfuse can take requests through a pipe (`splice_read`) and send data through one.
//!
//! The shim must see a request's head and may have to change it, so it takes the head (or the
//! whole, if that is short) out of the pipe itself and hands it to the daemon when the daemon
//! reads the pipe. That is the read that the daemon would have made, made a little earlier: no
//! system call and no copy is added.

use crate::argument::{Input, Output};
use crate::descriptors::stat_of;
use crate::real;
use crate::shim::Shim;
use belay_host::splice::{HEAD, SHORT, Spliced, set_length};
use belay_host::{Before, length, opcode};
use belay_oplog::InPlace;
use belay_wire::{Opcode, Unique};
use libc::{c_int, c_uint};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

thread_local! {
    static AHEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static AHEAD_LEFT: Cell<usize> = const { Cell::new(0) };
    /// Write end and read end of this thread's request pipe, once both are known.
    static PIPE: Cell<(c_int, c_int)> = const { Cell::new((-1, -1)) };
    /// Head of the reply that this thread has put into a pipe.
    static REPLY: Cell<[u8; 16]> = const { Cell::new([0; 16]) };
}

/// Whether a read of `fd` must first be served from what was taken out of the pipe.
#[inline]
pub(crate) fn is_ahead(fd: c_int) -> bool {
    AHEAD_LEFT.get() > 0 && is_read_end(fd)
}

fn is_read_end(fd: c_int) -> bool {
    let (write_end, read_end) = PIPE.get();
    if read_end >= 0 {
        return read_end == fd;
    }
    let same = inode(write_end).is_some_and(|ino| inode(fd) == Some(ino));
    if same {
        PIPE.set((write_end, fd));
    }
    same
}

fn inode(fd: c_int) -> Option<u64> {
    if fd < 0 {
        return None;
    }
    let stat = stat_of(fd)?;
    (stat.st_mode & libc::S_IFMT == libc::S_IFIFO).then_some(stat.st_ino)
}

/// Serves a read of the pipe from what was taken out of it.
pub(crate) fn read_ahead(mut buffer: Output<'_>) -> isize {
    AHEAD.with_borrow_mut(|ahead| {
        let n = buffer.put(ahead);
        ahead.drain(..n);
        AHEAD_LEFT.set(ahead.len());
        n as isize
    })
}

fn put_ahead(bytes: &[u8]) {
    AHEAD.with_borrow_mut(|ahead| {
        ahead.clear();
        ahead.extend_from_slice(bytes);
        AHEAD_LEFT.set(ahead.len());
    });
}

impl Shim {
    /// splice(2) from the device into the pipe `to`.
    pub(crate) fn splice_in(&self, from: c_int, to: c_int, len: usize, flags: c_uint) -> isize {
        if PIPE.get().0 != to {
            PIPE.set((to, -1));
        }
        self.effects_rest();
        let polled = self.waiting.is_used();
        let mut aborted = false;
        loop {
            // What is matched is gone when the thread may be cancelled.
            let again = match if polled {
                self.before_polled_read()
            } else {
                self.host.before_read(self)
            } {
                Before::Again => true,
                Before::Deliver(message, data) => return self.put_with(message, &data, to),
                Before::Fail(errno) => return real::fail(errno),
                Before::Read => false,
            };
            if again {
                real::look_for_cancellation();
                continue;
            }
            if self.host.copies() {
                if polled {
                    self.polled_read_ended(); // that looks for work itself
                }
                return self.splice_copied(from, to, len);
            }
            let nowhere = std::ptr::null_mut();
            // SAFETY: the daemon's own descriptors, length and flags; no offsets.
            let n = unsafe { real::splice(from, nowhere, to, nowhere, len, flags) };
            if polled {
                self.polled_read_ended();
            }
            let Ok(got) = usize::try_from(n) else {
                let errno = real::errno();
                if self.reads_again(errno, &mut aborted) {
                    continue;
                }
                real::set_errno(errno);
                return n;
            };
            let Some(read_end) = self.read_end(to) else {
                real::set_errno(libc::EINVAL);
                return -1;
            };
            match self.host.after_splice(self, got, |out| drain(read_end, out)) {
                None => return -1,
                Some(Spliced::Head(head)) => {
                    put_ahead(&head);
                    return n;
                }
                Some(Spliced::Whole(message)) => return self.put(&message, to),
                Some(Spliced::Again) => {}
            }
        }
    }

    /// Where requests are copied they are read, not spliced.
    fn splice_copied(&self, from: c_int, to: c_int, len: usize) -> isize {
        // The thread may be cancelled in its read: nothing that has a destructor lives across that.
        // The buffer is lost then.
        let mut message = ManuallyDrop::new(vec![0; len]);
        let n = self.read(from, Output::from(message.as_mut_slice()));
        let mut message = ManuallyDrop::into_inner(message);
        let Ok(got) = usize::try_from(n) else { return n };
        message.truncate(got);
        self.put(&message, to)
    }

    /// [`Shim::put`] of a message whose data, behind its head, are in the op-log.
    fn put_with(&self, mut message: Vec<u8>, data: &InPlace, to: c_int) -> isize {
        if data.is_empty() {
            return self.put(&message, to);
        }
        let head = message.len();
        message.resize(head + data.len(), 0);
        data.copy_to(self.host.memory(), message.get_mut(head..).unwrap_or_default());
        let put = self.put(&message, to);
        belay_host::EffectHooks::forwarded(self); // the copies are not the daemon's time
        put
    }

    /// Puts a message where the daemon will look for it: the head ahead of the pipe, and the data
    /// of a long write into the pipe, from where libfuse may splice it on.
    fn put(&self, message: &[u8], to: c_int) -> isize {
        let long = message.len() >= SHORT && opcode(message) == Opcode::WRITE;
        let (head, data) = message.split_at(if long { HEAD } else { message.len() });
        let mut rest = data;
        while !rest.is_empty() {
            // SAFETY: the pipe's write end and a readable buffer of that length.
            let n =
                unsafe { belay_sys::raw::syscall(libc::SYS_write, to, rest.as_ptr(), rest.len()) };
            let Ok(n) = usize::try_from(n) else { return -1 };
            rest = rest.get(n..).unwrap_or(&[]);
        }
        put_ahead(head);
        debug_assert_eq!(length(message), message.len());
        message.len() as isize
    }

    /// The read end of the pipe whose write end is `to`; found once for a thread.
    fn read_end(&self, to: c_int) -> Option<c_int> {
        let (_, known) = PIPE.get();
        if known >= 0 {
            return Some(known);
        }
        let ino = inode(to)?;
        // libfuse makes the pipe with one pipe2(2), so its read end is near; look at all in need.
        let near = [to - 1, to + 1, to - 2, to + 2];
        let found =
            near.into_iter().chain(0..4096).find(|fd| *fd != to && inode(*fd) == Some(ino))?;
        PIPE.set((to, found));
        Some(found)
    }

    /// splice(2) of a reply from the pipe `from` into the device `to`. What was read stays where it
    /// is; all else has to be seen whole.
    pub(crate) fn splice_out(
        &self,
        from: c_int,
        to: c_int,
        total: usize,
        pass: impl Fn() -> isize,
    ) -> isize {
        let mut head = REPLY.replace([0; 16]);
        let unique = belay_wire::get_u64(&head, 8).unwrap_or(0);
        let reads =
            || self.host.session().opcode_in_hand(Unique::unmarked(unique)) == Some(Opcode::READ);
        if self.host.direct().is_read(unique) || unique != 0 && reads() {
            // Of a file that ends before, libfuse makes it shorter once it knows: in the page that
            // is in the pipe.
            set_length(&mut head, total);
            return self.outgoing((&head, total), || Cow::Borrowed(&[]), pass);
        }
        if held(from) < total {
            real::set_errno(libc::EINVAL); // as the kernel says then
            return -1;
        }
        let mut message = vec![0; total];
        if !drain(from, &mut message) {
            return -1;
        }
        self.write_vectored(to, &[Input::from(message.as_slice())])
    }
}

/// Notes the head of a reply that goes into a pipe.
pub(crate) fn note_reply_head(first: &Input<'_>) {
    if let Ok(head) = first.bytes().try_into() {
        REPLY.set(head);
    }
}

/// Bytes in a pipe; 0 of what is none.
fn held(fd: c_int) -> usize {
    let mut bytes: c_int = 0;
    // SAFETY: FIONREAD writes one int, which lives; of another descriptor it only gives an error.
    let ok = inode(fd).is_some() && unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) } == 0;
    usize::try_from(bytes).ok().filter(|_| ok).unwrap_or(0)
}

fn drain(read_end: c_int, out: &mut [u8]) -> bool {
    let mut at = 0;
    while at < out.len() {
        let room = out.get_mut(at..).unwrap_or(&mut []);
        // SAFETY: the pipe's read end and a writable buffer of that length.
        let n = unsafe {
            belay_sys::raw::syscall(libc::SYS_read, read_end, room.as_mut_ptr(), room.len())
        };
        match usize::try_from(n) {
            Ok(n) if n > 0 => at += n,
            _ => return false,
        }
    }
    true
}
