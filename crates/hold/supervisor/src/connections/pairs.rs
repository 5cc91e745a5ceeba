//! Where the other end of a socket pair is.
//!
//! The kernel tells it (`sock_diag(7)`) of the sockets of this network namespace. What it tells is
//! of the kernel's own making; a daemon has no part in it.

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};
use std::time::Duration;

const HEADER: usize = 16; // struct nlmsghdr
const MESSAGE: usize = 16; // struct unix_diag_msg
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const SHOW_PEER: u32 = 4;
const PEER: u16 = 2;

/// The other end of a connection within this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A socket with this inode number.
    Inode(u64),
    /// It is closed.
    Closed,
    /// The kernel does not tell.
    Unknown,
}

/// Asks the kernel of sockets.
#[derive(Debug)]
pub struct Asker(Option<OwnedFd>);

impl Asker {
    /// One that knows nothing if the kernel has no such thing.
    pub fn new() -> Self {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        // It answers at once; but nothing waits for ever here.
        let limit = Some(Duration::from_secs(1));
        let socket = socket.ok().filter(|socket| {
            sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, limit).is_ok()
        });
        Self(socket)
    }

    /// Where the other end of the socket with this inode number is.
    pub fn peer(&self, inode: u64) -> Peer {
        self.ask(inode).unwrap_or(Peer::Unknown)
    }

    fn ask(&self, inode: u64) -> Option<Peer> {
        let socket = self.0.as_ref()?;
        let inode = u32::try_from(inode).ok()?;
        let mut request = Vec::with_capacity(40);
        request.extend(40_u32.to_ne_bytes());
        request.extend(BY_FAMILY.to_ne_bytes());
        request.extend(REQUEST.to_ne_bytes());
        request.extend([0; 8]); // sequence, sender
        request.extend([1, 0, 0, 0]); // AF_UNIX, no protocol
        for word in [u32::MAX, inode, SHOW_PEER, u32::MAX, u32::MAX] {
            request.extend(word.to_ne_bytes()); // any state; no cookie
        }
        send(socket, &request, SendFlags::empty()).ok()?;
        let mut answer = [0_u8; 1024];
        let (got, _) = recv(socket, &mut answer[..], RecvFlags::empty()).ok()?;
        parse(answer.get(..got)?, inode)
    }
}

/// What an answer says of the socket `inode`; nothing if it is an error or of another.
fn parse(answer: &[u8], inode: u32) -> Option<Peer> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != BY_FAMILY || word(HEADER + 4)? != inode {
        return None;
    }
    let end = usize::try_from(word(0)?).ok()?.min(answer.len());
    let mut at = HEADER + MESSAGE;
    while at + 4 <= end {
        let len = usize::from(half(at)?);
        if half(at + 2)? == PEER {
            return Some(Peer::Inode(word(at + 4)?.into()));
        }
        at += len.max(4).next_multiple_of(4);
    }
    Some(Peer::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn inode(socket: &UnixStream) -> u64 {
        rustix::fs::fstat(socket).expect("stat").st_ino
    }

    #[test]
    fn the_kernel_tells_the_other_end() {
        let asker = Asker::new();
        let (one, other) = UnixStream::pair().expect("socketpair");
        assert_eq!(asker.peer(inode(&one)), Peer::Inode(inode(&other)));
        assert_eq!(asker.peer(inode(&other)), Peer::Inode(inode(&one)));
        assert_eq!(asker.peer(1), Peer::Unknown, "no socket");
        assert_eq!(asker.peer(u64::MAX), Peer::Unknown);
    }

    #[test]
    fn answers_that_are_none_say_nothing() {
        assert_eq!(parse(&[], 7), None);
        assert_eq!(parse(&[0xff; 33], 7), None);
        let mut answer = vec![0; HEADER + MESSAGE];
        answer[4] = 20;
        answer[HEADER + 4] = 7;
        answer[0] = 200; // longer than it is
        assert_eq!(parse(&answer, 7), Some(Peer::Closed));
        assert_eq!(parse(&answer, 8), None);
        answer.extend([0, 0, 1, 0, 8, 0, 2, 0, 9, 0, 0, 0]); // one of no length before it
        assert_eq!(parse(&answer, 7), Some(Peer::Inode(9)));
        answer.truncate(answer.len() - 2);
        assert_eq!(parse(&answer, 7), None, "cut off");
    }
}
