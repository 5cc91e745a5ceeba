//! Waiting for an SFTP server to have carried out all that it was sent.
//!
//! An SFTP server answers each request, and OpenSSH's takes them one after the other; but when its
//! input ends, it ends at once and forgets what it had read and not yet begun
//! (sftp-server.c, `sftp_server_main`: "read eof"). So before the end of the input one more request
//! goes down the connection, and its answer says that everything before it is done.

use crate::process::{Watched, command_line};
use rustix::fd::OwnedFd;
use rustix::net::{SendFlags, send};
use std::time::{SystemTime, UNIX_EPOCH};

/// `SSH_FXP_EXTENDED` of draft-ietf-secsh-filexfer-02, section 8.
const EXTENDED: u8 = 200;
/// `SSH_FXP_STATUS`, section 7.
const STATUS: u8 = 101;
/// An extension that no server knows: it changes nothing and is answered with a status.
const NAME: &[u8] = b"barrier@belay";

/// Whether the process is an ssh that was told to talk to an SFTP server: `ssh ... -s sftp`, or
/// `ssh ... /usr/lib/sftp-server`. A server that was started directly counts as well.
pub(super) fn is_spoken_by(process: &Watched) -> bool {
    command_line(process.pid).last().is_some_and(|last| {
        let name = last.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        name.starts_with(b"sftp")
    })
}

/// A request whose answer proves that all before it was carried out.
#[derive(Debug)]
pub(super) struct Barrier {
    answer: [u8; 5],
    /// The end of what has come so far: the answer may arrive in two pieces.
    tail: Vec<u8>,
}

impl Barrier {
    /// Sends the request. `None` if the connection does not take it at the moment.
    ///
    /// What the daemon had sent ends at a message's end: it sends a message with one call, which
    /// the kernel does whole or not at all (net/unix/af_unix.c, `unix_stream_sendmsg`: one buffer
    /// for up to 32 KiB and a page, more than sshfs sends at once).
    pub(super) fn send(connection: &OwnedFd) -> Option<Self> {
        let time =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        // sshfs counts from 0: an id from the upper half cannot be one of its own.
        let id = (0x8000_0000 | time).to_be_bytes();
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
        let body: Vec<u8> = [&[EXTENDED], &id[..], &length(NAME.len())[..], NAME].concat();
        let message = [&length(body.len())[..], &body].concat();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if send(connection, &message, flags) != Ok(message.len()) {
            return None;
        }
        let mut answer = [STATUS; 5];
        answer[1..].copy_from_slice(&id);
        Some(Self { answer, tail: Vec::new() })
    }

    /// Takes what came from the server; says whether the answer is in it.
    pub(super) fn answered_by(&mut self, bytes: &[u8]) -> bool {
        self.tail.extend_from_slice(bytes);
        let found = self.tail.windows(self.answer.len()).any(|window| window == self.answer);
        let keep = self.tail.len().saturating_sub(self.answer.len() - 1);
        self.tail.drain(..keep);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    /// The real server: what is queued before the barrier is done when its answer comes.
    #[test]
    fn the_answer_comes_after_everything_else_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut server = Command::new("/usr/lib/openssh/sftp-server")
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone().unwrap())))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut requests = vec![0, 0, 0, 5, 1, 0, 0, 0, 3];
        for n in 0..200u32 {
            let path = dir.path().join(n.to_string());
            let path = path.to_str().unwrap().as_bytes();
            let mut body = vec![14]; // SSH_FXP_MKDIR
            body.extend(n.to_be_bytes());
            body.extend(u32::try_from(path.len()).unwrap().to_be_bytes());
            body.extend(path);
            body.extend([0; 4]);
            requests.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            requests.extend(body);
        }
        (&ours).write_all(&requests).unwrap();
        let connection = OwnedFd::from(ours.try_clone().unwrap());
        let mut barrier = Barrier::send(&connection).unwrap();
        // A byte at a time, so that the answer comes in pieces.
        let mut byte = [0];
        loop {
            (&ours).read_exact(&mut byte).unwrap();
            if barrier.answered_by(&byte) {
                break;
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 200);
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        (&ours).read_to_end(&mut Vec::new()).unwrap();
        assert!(server.wait().unwrap().success());
    }
}
