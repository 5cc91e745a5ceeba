//! What keeper and supervisor hand to each other: the descriptors of the mount, and notes.
//!
//! The socket is the standard input of the process that is started; the first message on it
//! carries all descriptors, the real standard input among them. So no descriptor has a number
//! that both sides must agree on.

use crate::error::{Error, Result};
use crate::process::Exited;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

const COUNT: usize = 24;
const MAX_NOTE: usize = 64 << 10;

/// Everything that must outlive any one process, as descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Memory file with the [`crate::config::Config`] as JSON.
    pub config: OwnedFd,
    /// The recorder.
    pub recorder: OwnedFd,
    /// The supervisor's own state, see [`crate::ledger`].
    pub ledger: OwnedFd,
    /// The FUSE device description that the mount belongs to.
    pub device: OwnedFd,
    /// The shim's event counter.
    pub event: OwnedFd,
    /// Where the daemon's standard error is read.
    pub stderr_read: OwnedFd,
    /// Where the daemon writes it. Kept open so that a daemon without supervisor gets no SIGPIPE.
    pub stderr_write: OwnedFd,
    /// The listening control socket.
    pub control: OwnedFd,
    /// The lock that says this mount has a living keeper or supervisor.
    pub lock: OwnedFd,
    /// The mount's folder in the state directory: what is written there goes there, wherever its
    /// path leads to.
    pub folder: OwnedFd,
    /// The lock on the image's journal; where there is none, `lock` once more.
    pub journal: OwnedFd,
    /// The folder that the journal is in; where there is none, `lock` once more, as for the next
    /// two.
    pub journal_folder: OwnedFd,
    /// The folder of the link that leads to the journal.
    pub pointer_folder: OwnedFd,
    /// The image.
    pub image: OwnedFd,
    /// The folder of what a daemon shows that works on nothing else ([`crate::config::Medium`]);
    /// where there is none, `lock` once more.
    pub medium_folder: OwnedFd,
    /// What keeps the locks on the image (see [`crate::image::ImageFds`]); nothing is done with it.
    pub hold: OwnedFd,
    /// The standard input for daemons.
    pub stdin: OwnedFd,
    /// The mailbox's end for fusermount (see [`crate::fusermount`]).
    pub post: OwnedFd,
    /// The mailbox's end that belay looks at.
    pub mail: OwnedFd,
    /// Where the daemon leaves its image (see [`belay_sys::mailbox`]).
    pub image_post: OwnedFd,
    /// Where that is looked at.
    pub image_mail: OwnedFd,
    /// The shim, as it was when belay was started: a memory file that nobody can change.
    pub shim: OwnedFd,
    /// The daemon's program that has served last; before that, the one that was there at the start.
    /// A place only (`O_PATH`).
    pub program: OwnedFd,
    /// The folder that the mount covers, for users who cannot give successors a mount table without
    /// the mount. A place only (`O_PATH`); where it is not known, `lock` once more.
    pub covered: OwnedFd,
}

/// Closes what may be a file on a disk that gives no answer: a network file system, or one of FUSE,
/// is asked at each close.
pub fn close_aside(fds: impl Send + 'static) {
    crate::threads::beside("close", move || drop(fds));
}

impl Descriptors {
    fn borrowed(&self) -> [BorrowedFd<'_>; COUNT] {
        [
            self.config.as_fd(),
            self.recorder.as_fd(),
            self.ledger.as_fd(),
            self.device.as_fd(),
            self.event.as_fd(),
            self.stderr_read.as_fd(),
            self.stderr_write.as_fd(),
            self.control.as_fd(),
            self.lock.as_fd(),
            self.folder.as_fd(),
            self.journal.as_fd(),
            self.journal_folder.as_fd(),
            self.pointer_folder.as_fd(),
            self.image.as_fd(),
            self.medium_folder.as_fd(),
            self.hold.as_fd(),
            self.stdin.as_fd(),
            self.post.as_fd(),
            self.mail.as_fd(),
            self.image_post.as_fd(),
            self.image_mail.as_fd(),
            self.shim.as_fd(),
            self.program.as_fd(),
            self.covered.as_fd(),
        ]
    }

    fn from_received(received: Vec<OwnedFd>) -> Option<Self> {
        let [
            config,
            recorder,
            ledger,
            device,
            event,
            stderr_read,
            stderr_write,
            control,
            lock,
            folder,
            journal,
            journal_folder,
            pointer_folder,
            image,
            medium_folder,
            hold,
            stdin,
            post,
            mail,
            image_post,
            image_mail,
            shim,
            program,
            covered,
        ] = <[OwnedFd; COUNT]>::try_from(received).ok()?;
        Some(Self {
            config,
            recorder,
            ledger,
            device,
            event,
            stderr_read,
            stderr_write,
            control,
            lock,
            folder,
            journal,
            journal_folder,
            pointer_folder,
            image,
            medium_folder,
            hold,
            stdin,
            post,
            mail,
            image_post,
            image_mail,
            shim,
            program,
            covered,
        })
    }
}

/// One message between keeper and supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub enum Note {
    /// First message to a new process, with the descriptors.
    Hello {
        /// Process id of the sender.
        from: u32,
        /// Whether an earlier supervisor is dead.
        takeover: bool,
        /// What the keeper has reaped lately.
        history: Vec<Exited>,
        /// Signals that asked belay to stop, so far.
        stops: u32,
    },
    /// First message to a keeper in the background, with the descriptors of a mount that is to be.
    Begin,
    /// The supervisor has taken over and works.
    Working,
    /// The supervisor has another journal than before; with the descriptors.
    Journal,
    /// Another program has come to serve; with the descriptors.
    Program,
    /// The keeper reaped a process.
    Exited(Exited),
    /// The keeper got a signal that asks belay to stop.
    Stop {
        /// Its number.
        signal: i32,
    },
    /// The supervisor ends on purpose; belay's exit code is `code`.
    Done {
        /// The exit code.
        code: i32,
    },
}

/// What [`Link::receive`] found.
#[derive(Debug)]
pub enum Received {
    /// A note.
    Note(Note),
    /// A note that came with descriptors.
    WithDescriptors(Note, Descriptors),
    /// Nothing now.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// One end of the connection between keeper and supervisor.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Two connected ends.
    ///
    /// # Errors
    /// Those of socketpair(2).
    pub fn pair() -> Result<(Self, Self)> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| {
                    Error::system("make", "a socket pair", error, "raise the limit of open files")
                })?;
        Ok((Self(a), Self(b)))
    }

    /// The end that a parent left as this process's standard input.
    ///
    /// # Errors
    /// Those of dup(2).
    pub fn from_stdin() -> Result<Self> {
        let fd = belay_sys::dup_cloexec(rustix::stdio::stdin())
            .map_err(|error| Error::system("duplicate", "standard input", error, ""))?;
        Ok(Self(fd))
    }

    /// The descriptor, to become another process's standard input.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends a note; never waits.
    ///
    /// # Errors
    /// `EAGAIN` if the other side does not read, `EPIPE` if it is gone.
    pub fn send(&self, note: &Note) -> rustix::io::Result<()> {
        self.send_parts(note, &mut SendAncillaryBuffer::default())
    }

    /// Sends a note with the descriptors.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub fn send_descriptors(&self, note: &Note, fds: &Descriptors) -> rustix::io::Result<()> {
        let borrowed = fds.borrowed();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(Errno::NOBUFS);
        }
        self.send_parts(note, &mut control)
    }

    fn send_parts(
        &self,
        note: &Note,
        control: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> rustix::io::Result<()> {
        let bytes = serde_json::to_vec(note).map_err(|_| Errno::INVAL)?;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&bytes)], control, flags).map(drop)
    }

    /// Takes the next note; waits for one only if `wait` is set. What cannot be understood is
    /// dropped, as if nothing were there.
    pub fn receive(&self, wait: bool) -> Received {
        let mut bytes = vec![0; MAX_NOTE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(COUNT))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if !wait {
            flags |= RecvFlags::DONTWAIT;
        }
        let length = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
                Ok(message) if message.bytes == 0 => return Received::Closed,
                Ok(message) => break message.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(_) => return Received::Closed,
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let note = bytes.get(..length).map(serde_json::from_slice::<Note>);
        match note {
            Some(Ok(note)) if fds.is_empty() => Received::Note(note),
            Some(Ok(note)) => match Descriptors::from_received(fds) {
                Some(fds) => Received::WithDescriptors(note, fds),
                None => Received::Note(note),
            },
            _ => Received::Nothing,
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn memfd() -> OwnedFd {
        memfd_create("belay-test", MemfdFlags::CLOEXEC).expect("memfd")
    }

    #[test]
    fn descriptors_and_notes_arrive() {
        let (a, b) = Link::pair().expect("pair");
        let fds = Descriptors {
            config: memfd(),
            recorder: memfd(),
            ledger: memfd(),
            device: memfd(),
            event: memfd(),
            stderr_read: memfd(),
            stderr_write: memfd(),
            control: memfd(),
            lock: memfd(),
            folder: memfd(),
            journal: memfd(),
            journal_folder: memfd(),
            pointer_folder: memfd(),
            image: memfd(),
            covered: memfd(),
            medium_folder: memfd(),
            hold: memfd(),
            stdin: memfd(),
            post: memfd(),
            mail: memfd(),
            image_post: memfd(),
            image_mail: memfd(),
            shim: memfd(),
            program: memfd(),
        };
        rustix::io::write(&fds.ledger, b"x").expect("write");
        let hello = Note::Hello { from: 1, takeover: true, history: vec![], stops: 2 };
        a.send_descriptors(&hello, &fds).expect("send");
        let Received::WithDescriptors(note, got) = b.receive(false) else { panic!("no fds") };
        assert_eq!(note, hello);
        assert_eq!(rustix::fs::fstat(&got.ledger).expect("stat").st_size, 1);
        assert!(matches!(b.receive(false), Received::Nothing));
        a.send(&Note::Done { code: 3 }).expect("send");
        assert!(matches!(b.receive(false), Received::Note(Note::Done { code: 3 })));
        rustix::io::write(&a, b"nonsense").expect("write");
        assert!(matches!(b.receive(false), Received::Nothing));
        drop(a);
        assert!(matches!(b.receive(false), Received::Closed));
    }
}
