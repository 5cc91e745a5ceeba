//! Whether the daemon has a connection. Looked at when it answers with an error, which is rare.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::net::{SocketType, sockopt};
use std::fs;

/// Standard input, output and error are no connections of its work.
const OWN: RawFd = 3;

/// Whether one of this process's stream sockets is connected, and the other end has not hung up. `ours` are belay's.
pub(crate) fn is_up(ours: &[RawFd]) -> bool {
    // Where that cannot be seen, an error is taken for what it says.
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return true };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let theirs = |number: &RawFd| *number >= OWN && !ours.contains(number);
    numbers.filter(theirs).any(leads_somewhere)
}

fn leads_somewhere(number: RawFd) -> bool {
    // SAFETY: it was listed as open just now. Should another thread of the daemon close it meanwhile, these calls fail, or
    // tell of another file: neither does harm.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    if sockopt::socket_type(fd) != Ok(SocketType::STREAM) || rustix::net::getpeername(fd).is_err() {
        return false;
    }
    let mut fds = [PollFd::new(&fd, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::RDHUP | PollFlags::NVAL;
    poll(&mut fds, Some(&at_once)).is_ok() && !fds.iter().any(|fd| fd.revents().intersects(gone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_connection_is_up_until_the_other_end_hangs_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(leads_somewhere(ours.as_raw_fd()));
        drop(theirs);
        assert!(!leads_somewhere(ours.as_raw_fd()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!leads_somewhere(reader.as_raw_fd()));
        assert!(!leads_somewhere(1 << 20));
    }
}
