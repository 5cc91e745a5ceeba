//! What is asked of a scout, and answered.

use crate::connections::Wanted;
use crate::look::found::{FileStat, Links};
use crate::text::OsText;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Descriptors of one message.
pub(super) const ROOM: usize = 16;
const MAX_MESSAGE: usize = 64 << 10;

/// What one is sent for. Descriptors come along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// What is at a path, from a folder on if one comes along; of no path, what comes along.
    Look { path: OsText, links: Links },
    /// The root of what is mounted at a path, and the folder that it is in, neither of which is
    /// asked for anything.
    Root { path: OsText },
    /// Whether the device is in the mailbox.
    Device,
    /// What is in the image box.
    Image,
    /// These descriptors of the process that comes along.
    Copies { pid: u32, wanted: Vec<Wanted> },
    /// The disk image that the process that comes along has open for writing.
    Opened { pid: u32 },
    /// Which of these paths leads to a file that holds the number of a process.
    PidFile { paths: Vec<OsText>, pid: u32 },
    /// Carry out what the last daemon had committed: the recorder comes along, and the image box.
    Finish,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// With the file, pinned.
    There { stat: FileStat, gained: Option<String> },
    /// It cannot be had.
    Not(i32),
    /// With the folder, and what is mounted there.
    Root,
    /// With the device, if it is there.
    Device,
    /// Device and inode number.
    Image(Option<(u64, u64)>),
    /// With the copies, of which these are the inode numbers.
    Copies(Vec<u64>),
    /// Its path, and what it holds.
    Opened(Option<(OsText, String)>),
    /// The path.
    PidFile(Option<OsText>),
    /// How many transactions there were, or why not.
    Finish(Result<usize, String>),
}

impl Question {
    /// Whether nothing depends on it but a hint: one at a time, as every failed start asks, and
    /// others must find somebody to send.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::PidFile { .. })
    }
}

/// Sends a question or an answer, with what comes along.
pub(super) fn send<T: Serialize>(
    link: &OwnedFd,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS.into());
    }
    sendmsg(link, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What lies there; nothing if the other side is gone.
pub(super) fn receive<T: DeserializeOwned>(link: &OwnedFd) -> Option<(T, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got =
        recvmsg(link, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let message = serde_json::from_slice(bytes.get(..got.ok()?.bytes)?).ok()?;
    Some((message, fds))
}
