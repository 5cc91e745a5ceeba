//! Messages on their way to the kernel, and the reading of structures from bytes.

use belay_recorder::{InFlight, MAX_REPLY};
use belay_wire::abi::{
    CopyFileRangeOut, EntryOut, InHeader, OutHeader, Rename2In, RenameIn, SetattrIn, SetattrValid,
    WriteOut,
};
use belay_wire::{Opcode, OpcodeSet, Request, Rule};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A reply of at most [`MAX_REPLY`] bytes, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Message {
    bytes: [u8; MAX_REPLY],
    len: usize,
}

impl Message {
    /// The message with the header at the start of `head`, and `body`; `None` if it is too long.
    pub fn new(head: &[u8], body: &[u8]) -> Option<Self> {
        let head = head.first_chunk::<{ size_of::<OutHeader>() }>()?;
        let len = head.len() + body.len();
        let mut bytes = [0; MAX_REPLY];
        *bytes.first_chunk_mut()? = *head;
        bytes.get_mut(head.len()..len)?.copy_from_slice(body);
        Some(Self { bytes, len })
    }

    /// The message.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub(crate) fn as_mut_bytes(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.len).unwrap_or(&mut [])
    }

    pub(crate) fn patch<T: IntoBytes + Immutable>(&mut self, at: usize, value: &T) {
        let value = value.as_bytes();
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }

    pub(crate) fn get<T: FromBytes>(&self, at: usize) -> Option<T> {
        T::read_from_prefix(self.as_bytes().get(at..)?).ok().map(|(value, _)| value)
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({} bytes)", self.len)
    }
}

/// What the shim writes to the device for a daemon's reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// What the daemon wrote; the session has done with it.
    Pass,
    /// What the daemon wrote; then call [`crate::Session::on_delivered`].
    PassKept,
    /// This instead; then call [`crate::Session::on_delivered`].
    Replace(Message),
    /// This instead; then call [`crate::Session::on_delivered`].
    ReplaceLong(Vec<u8>),
    /// Nothing: it was the reply to an injected request. The daemon's write succeeds.
    Swallow,
    /// Nothing; the daemon's write fails with this errno.
    Refuse(i32),
    /// Nothing: the reply breaks this rule, and the daemon is to serve no longer, as if it had
    /// crashed.
    Fault(Rule),
    /// What the daemon has done cannot be put on record, so it must not be answered: the daemon is
    /// to be ended, and its successor is given the request behind a checkpoint.
    Unrecordable,
}

/// Requests whose replies say how many bytes were written.
pub(crate) const COUNTED: OpcodeSet =
    OpcodeSet::new(&[Opcode::WRITE, Opcode::COPY_FILE_RANGE, Opcode::COPY_FILE_RANGE_64]);

/// How many that are; 0 if there is none.
pub(crate) fn count_of(opcode: Opcode, reply: &[u8]) -> u64 {
    let body = reply.get(size_of::<OutHeader>()..).unwrap_or_default();
    match opcode {
        Opcode::COPY_FILE_RANGE_64 => {
            read::<CopyFileRangeOut>(body).map_or(0, |out| out.bytes_copied)
        }
        _ => read::<WriteOut>(body).map_or(0, |out| u64::from(out.size)),
    }
}

/// The header of a recorded request, as the kernel sent it but for lengths.
pub(crate) fn header_of(request: &InFlight) -> InHeader {
    InHeader {
        opcode: request.opcode,
        unique: request.unique,
        nodeid: request.node,
        uid: request.uid,
        gid: request.gid,
        pid: request.pid,
        ..InHeader::default()
    }
}

/// A message of a daemon: the header at the start of `head`, and `body`.
pub(crate) fn whole(head: &[u8], body: &[u8]) -> Vec<u8> {
    [head.get(..size_of::<OutHeader>()).unwrap_or(head), body].concat()
}

/// Reads a structure from the start of `bytes`.
pub(crate) fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

/// Key of the directory that a rename goes to.
pub(crate) fn target_dir(request: &Request<'_>) -> Option<u64> {
    match request.opcode() {
        Opcode::RENAME => request.body_as::<RenameIn>().map(|rename| rename.newdir),
        Opcode::RENAME2 => request.body_as::<Rename2In>().map(|rename| rename.newdir),
        _ => None,
    }
}

/// The entry of a LOOKUP's reply; `None` if the name is absent.
pub(crate) fn entry_of(reply: &[u8]) -> Option<EntryOut> {
    let header = read::<OutHeader>(reply)?;
    let entry = reply.get(16..).and_then(read::<EntryOut>)?;
    (header.error == 0 && entry.nodeid != 0).then_some(entry)
}

/// A SETATTR that sets a mode.
pub(crate) fn set_mode(mode: u32) -> SetattrIn {
    SetattrIn { valid: SetattrValid::MODE, mode, ..SetattrIn::default() }
}
