//! Whether the daemon has a connection still, of daemons whose profile says that they end with it.
//!
//! What such a daemon answers without one is no answer: sshfs gives EIO, and reads that were asked
//! in several pieces come short, which the kernel takes for the end of the file.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::net::{SocketType, sockopt};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// So many replies without any connection say that the daemon works without.
const ENOUGH: i32 = 8;

/// The connection of this life's daemon.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The descriptor that was one when last looked; below 0: minus one for each look at which
    /// there was none.
    fd: AtomicI32,
    /// The inode numbers of sockets that were there before the daemon: belay's own, and what
    /// whoever started belay left open.
    older: Vec<u64>,
}

impl Connection {
    /// Before the daemon has any. `is_asked`: whether it will be asked for.
    pub(crate) fn new(is_asked: bool) -> Self {
        let mut older = Vec::new();
        if is_asked {
            let _ = look_through(|fd| {
                older.extend(rustix::fs::fstat(fd).map(|stat| stat.st_ino));
                false
            });
        }
        Self { fd: AtomicI32::new(-1), older }
    }

    /// Notes the one that the daemon has by now, if it has one.
    pub(crate) fn look(&self) {
        if let Ok(Some(fd)) = self.find() {
            self.fd.store(fd, Relaxed);
        }
    }

    /// Whether the daemon had one, and has none now. Asked at each reply: two system calls, where
    /// the answer has taken a round trip through that connection.
    pub(crate) fn is_gone(&self) -> bool {
        let known = self.fd.load(Relaxed);
        if known < -ENOUGH || known >= 0 && asked(known, is_up) {
            return false;
        }
        match self.find() {
            // What cannot be seen is not gone.
            Err(_) => return false,
            Ok(Some(fd)) => self.fd.store(fd, Relaxed),
            Ok(None) if known >= 0 => return true,
            Ok(None) => self.fd.store(known - 1, Relaxed),
        }
        false
    }

    /// A stream socket of the daemon's that is connected, if there is one.
    fn find(&self) -> io::Result<Option<RawFd>> {
        look_through(|fd| {
            let is_older =
                rustix::fs::fstat(fd).is_ok_and(|stat| self.older.contains(&stat.st_ino));
            !is_older && is_up(fd)
        })
    }
}

/// The first of this process's stream sockets that is wanted.
fn look_through(mut is_wanted: impl FnMut(BorrowedFd<'_>) -> bool) -> io::Result<Option<RawFd>> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_it = |fd: BorrowedFd<'_>| {
            sockopt::socket_type(fd) == Ok(SocketType::STREAM) && is_wanted(fd)
        };
        if asked(number, is_it) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// What `ask` finds out of a descriptor that is, or was, the daemon's; below 0 there is none.
fn asked(number: RawFd, ask: impl FnOnce(BorrowedFd<'_>) -> bool) -> bool {
    // SAFETY: it is not -1, and is not kept: `ask` has it for as long as it runs. What it is passed
    // to here only asks: should another thread of the daemon have closed it, that fails, or tells
    // of another file, which does no harm.
    number >= 0 && ask(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Whether a socket is connected, and the other end has not hung up. A number may be another file's
/// by now, that of a search of another thread for example.
fn is_up(fd: BorrowedFd<'_>) -> bool {
    if rustix::net::getpeername(fd).is_err() {
        return false;
    }
    let mut fds = [PollFd::new(&fd, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP | PollFlags::NVAL;
    // Where that cannot be asked, what the daemon says is taken for an answer.
    poll(&mut fds, Some(&at_once)).is_err() || !fds.iter().any(|fd| fd.revents().intersects(gone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// All tests of this process share its table of descriptors: a socket of another one would be
    /// taken for the daemon's. Every test that opens a stream socket holds this.
    fn only_our_sockets() -> MutexGuard<'static, ()> {
        static SOCKETS: Mutex<()> = Mutex::new(());
        SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_connection_is_up_until_the_other_end_hangs_up() {
        let _only = only_our_sockets();
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(is_up(ours.as_fd()));
        drop(theirs);
        assert!(!is_up(ours.as_fd()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_up(reader.as_fd()) && !asked(1 << 20, is_up));
    }

    #[test]
    fn who_never_had_a_connection_has_not_lost_it() {
        let _only = only_our_sockets();
        let (_older, _other) = UnixStream::pair().unwrap();
        let connection = Connection::new(true);
        for _ in 0..3 * ENOUGH {
            assert!(!connection.is_gone(), "only what is older is there");
        }
        let connection = Connection::new(true);
        let (_ours, theirs) = UnixStream::pair().unwrap();
        assert!(!connection.is_gone() && !connection.is_gone());
        drop(theirs);
        assert!(connection.is_gone() && connection.is_gone());
    }
}
