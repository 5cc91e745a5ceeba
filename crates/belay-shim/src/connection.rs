//! Whether the daemon has a connection still, of daemons whose profile says that they end with it.
//!
//! What such a daemon answers without one is no answer: sshfs gives EIO, and reads that were asked in several pieces come
//! short, which the kernel takes for the end of the file.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::net::{SocketType, sockopt};
use std::fs;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Standard input, output and error are no connections of its work.
const OWN: RawFd = 3;
/// So many replies without any connection say that the daemon works without.
const ENOUGH: i32 = 8;

/// The connection of this life's daemon.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The descriptor that was one when last looked; below 0: minus one for each look at which there was none.
    fd: AtomicI32,
}

impl Connection {
    pub(crate) const fn new() -> Self {
        Self { fd: AtomicI32::new(-1) }
    }

    /// Notes the one that the daemon has by now, if it has one.
    pub(crate) fn look(&self, ours: &[RawFd]) {
        if let Some(fd) = find(ours) {
            self.fd.store(fd, Relaxed);
        }
    }

    /// Whether the daemon had one, and has none now. `ours` are belay's sockets. Asked at each reply: two system
    /// calls, where the answer has taken a round trip through that connection.
    pub(crate) fn is_gone(&self, ours: &[RawFd]) -> bool {
        let known = self.fd.load(Relaxed);
        if known < -ENOUGH || known >= 0 && is_up(known) {
            return false;
        }
        match find(ours) {
            Some(fd) => self.fd.store(fd, Relaxed),
            None if known >= 0 => return true,
            None => self.fd.store(known - 1, Relaxed),
        }
        false
    }
}

/// A stream socket of this process that is connected, if there is one.
fn find(ours: &[RawFd]) -> Option<RawFd> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let theirs = |number: &RawFd| *number >= OWN && !ours.contains(number);
    numbers.filter(theirs).find(|number| is_stream(*number) && is_up(*number))
}

fn is_stream(number: RawFd) -> bool {
    // SAFETY: it was listed as open just now. Should another thread of the daemon close it meanwhile, the call fails, or
    // tells of another file: neither does harm.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    sockopt::socket_type(fd) == Ok(SocketType::STREAM)
}

/// Whether it is connected, and the other end has not hung up. Its number may be another file's by now, that of a search
/// of another thread for example.
fn is_up(number: RawFd) -> bool {
    // SAFETY: as above: it was a descriptor of the daemon's, and these calls say if it is one no more.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
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
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_is_up_until_the_other_end_hangs_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        assert!(is_stream(fd) && is_up(fd));
        drop(theirs);
        assert!(is_stream(fd) && !is_up(fd));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_stream(reader.as_raw_fd()) && !is_up(reader.as_raw_fd()));
        assert!(!is_stream(1 << 20) && !is_up(1 << 20));
    }

    #[test]
    fn who_never_had_a_connection_has_not_lost_it() {
        // Other tests of this process may have some.
        let all: Vec<RawFd> = (0..1 << 12).collect();
        let connection = Connection::new();
        for _ in 0..3 * ENOUGH {
            assert!(!connection.is_gone(&all));
        }
        let connection = Connection::new();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let others: Vec<RawFd> = all.into_iter().filter(|fd| *fd != ours.as_raw_fd()).collect();
        assert!(!connection.is_gone(&others) && !connection.is_gone(&others));
        drop(theirs);
        assert!(connection.is_gone(&others) && connection.is_gone(&others));
    }
}
