//! Where a message holds node ids and handles, so that they can be translated in place.
//!
//! An offset counts bytes from the start of the message, header included. Every field is a `u64`. A
//! field that a cut-short message does not hold is not reported.

use std::mem::offset_of;

use crate::abi::{
    CopyFileRangeIn, GETATTR_FH, GetattrIn, LinkIn, Rename2In, RenameIn, SetattrIn, SetattrValid,
    StatxIn,
};
use crate::opcode::{Opcode, OpcodeSet};
use crate::request::{HEADER, Request};

/// Offset in bytes of the header's `nodeid`.
pub const NODEID_OFFSET: usize = offset_of!(crate::abi::InHeader, nodeid);
/// Offset in bytes of the header's `unique`, in a request and in a reply alike.
pub const UNIQUE_OFFSET: usize = offset_of!(crate::abi::InHeader, unique);
const _: () = assert!(offset_of!(crate::abi::OutHeader, unique) == UNIQUE_OFFSET);

/// Up to two offsets, in bytes from the start of the message. Iterates as `usize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    first: Option<usize>,
    second: Option<usize>,
}

impl Fields {
    /// Keeps those of the given body offsets whose `u64` the message holds.
    #[inline]
    fn of(request: &Request<'_>, first: Option<usize>, second: Option<usize>) -> Self {
        let place = |at: usize| {
            get_u64(request.body, at)?;
            at.checked_add(HEADER)
        };
        let (a, b) = (first.and_then(place), second.and_then(place));
        Fields { first: a.or(b), second: if a.is_some() { b } else { None } }
    }

    /// The offsets, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.first.into_iter().chain(self.second)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()).saturating_add(usize::from(self.second.is_some()))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl IntoIterator for Fields {
    type Item = usize;
    type IntoIter = std::iter::Chain<std::option::IntoIter<usize>, std::option::IntoIter<usize>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.second)
    }
}

impl IntoIterator for &Fields {
    type Item = usize;
    type IntoIter = <Fields as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (*self).into_iter()
    }
}

/// Where node ids sit besides the header's own: the linked node of LINK, the target directory of
/// RENAME and RENAME2, the target of COPY_FILE_RANGE and COPY_FILE_RANGE_64.
///
/// The items of BATCH_FORGET, of which there may be many, are with [`Request::forgets`].
#[must_use]
#[inline]
pub fn node_fields(request: &Request<'_>) -> Fields {
    const SOME: OpcodeSet = OpcodeSet::new(&[
        Opcode::LINK,
        Opcode::RENAME,
        Opcode::RENAME2,
        Opcode::COPY_FILE_RANGE,
        Opcode::COPY_FILE_RANGE_64,
    ]);
    if SOME.has(request.opcode()) { some_node_fields(request) } else { Fields::default() }
}

fn some_node_fields(request: &Request<'_>) -> Fields {
    let at = match request.opcode() {
        Opcode::LINK => offset_of!(LinkIn, oldnodeid),
        Opcode::RENAME => offset_of!(RenameIn, newdir),
        Opcode::RENAME2 => offset_of!(Rename2In, newdir),
        Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => {
            offset_of!(CopyFileRangeIn, nodeid_out)
        }
        _ => return Fields::default(),
    };
    Fields::of(request, Some(at), None)
}

/// Where the handles sit that are valid in this message.
///
/// GETATTR, STATX and SETATTR carry one only where their flags say so. SETUPMAPPING is left out:
/// the kernel sends all ones there. POLL's `kh` is the kernel's own and is not a handle of the
/// daemon.
#[must_use]
#[inline]
pub fn handle_fields(request: &Request<'_>) -> Fields {
    const FIRST: OpcodeSet = OpcodeSet::new(&[
        Opcode::READ,
        Opcode::WRITE,
        Opcode::RELEASE,
        Opcode::RELEASEDIR,
        Opcode::FLUSH,
        Opcode::FSYNC,
        Opcode::FSYNCDIR,
        Opcode::GETLK,
        Opcode::SETLK,
        Opcode::SETLKW,
        Opcode::READDIR,
        Opcode::READDIRPLUS,
        Opcode::IOCTL,
        Opcode::POLL,
        Opcode::FALLOCATE,
        Opcode::LSEEK,
    ]);
    const ELSEWHERE: OpcodeSet = OpcodeSet::new(&[
        Opcode::COPY_FILE_RANGE,
        Opcode::COPY_FILE_RANGE_64,
        Opcode::GETATTR,
        Opcode::STATX,
        Opcode::SETATTR,
    ]);
    if FIRST.has(request.opcode()) {
        Fields::of(request, Some(0), None)
    } else if ELSEWHERE.has(request.opcode()) {
        other_handle_fields(request)
    } else {
        Fields::default()
    }
}

fn other_handle_fields(request: &Request<'_>) -> Fields {
    match request.opcode() {
        Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => Fields::of(
            request,
            Some(offset_of!(CopyFileRangeIn, fh_in)),
            Some(offset_of!(CopyFileRangeIn, fh_out)),
        ),
        Opcode::GETATTR => flagged(request, GETATTR_FH, offset_of!(GetattrIn, fh)),
        Opcode::STATX => flagged(request, GETATTR_FH, offset_of!(StatxIn, fh)),
        Opcode::SETATTR => flagged(request, SetattrValid::FH.bits(), offset_of!(SetattrIn, fh)),
        _ => Fields::default(),
    }
}

/// A handle that counts only if the word at the start of the body has the bit.
fn flagged(request: &Request<'_>, bit: u32, at: usize) -> Fields {
    match request.body_as::<u32>() {
        Some(word) if word & bit != 0 => Fields::of(request, Some(at), None),
        _ => Fields::default(),
    }
}

/// Reads the native-endian `u64` at byte `off`; `None` if it is not wholly inside.
#[must_use]
#[inline]
pub fn get_u64(buf: &[u8], off: usize) -> Option<u64> {
    let bytes = buf.get(off..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Overwrites the native-endian `u64` at byte `off`; false, and nothing is changed, if it is not
/// wholly inside.
#[must_use]
#[inline]
pub fn put_u64(buf: &mut [u8], off: usize, value: u64) -> bool {
    match buf.get_mut(off..).and_then(<[u8]>::first_chunk_mut) {
        Some(bytes) => {
            *bytes = value.to_ne_bytes();
            true
        }
        None => false,
    }
}

/// Reads the native-endian `u32` at byte `off`; `None` if it is not wholly inside.
#[must_use]
#[inline]
pub fn get_u32(buf: &[u8], off: usize) -> Option<u32> {
    let bytes = buf.get(off..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

/// Overwrites the native-endian `u32` at byte `off`; false, and nothing is changed, if it is not
/// wholly inside.
#[must_use]
#[inline]
pub fn put_u32(buf: &mut [u8], off: usize, value: u32) -> bool {
    match buf.get_mut(off..).and_then(<[u8]>::first_chunk_mut) {
        Some(bytes) => {
            *bytes = value.to_ne_bytes();
            true
        }
        None => false,
    }
}
