//! A checked view over one message from the daemon, and where things sit in it.

use std::mem::offset_of;

use zerocopy::FromBytes;

use crate::abi::{Attr, AttrOut, EntryOut, OutHeader, Statx, StatxOut};
use crate::error::WireError;
use crate::opcode::Opcode;

/// Offset in bytes, from the start of the message, of the [`EntryOut`] of an entry reply: behind
/// the header.
pub const ENTRY_OFFSET: usize = size_of::<OutHeader>();
/// The same of the number of hard links (a `u32`).
#[must_use]
pub const fn nlink_offset(opcode: Opcode) -> Option<usize> {
    const STATX: usize = ENTRY_OFFSET + offset_of!(StatxOut, stat) + offset_of!(Statx, nlink);
    const NLINK: usize = offset_of!(Attr, nlink);
    match (opcode, attr_offset(opcode)) {
        (Opcode::STATX, _) => Some(STATX),
        (_, Some(attr)) => attr.checked_add(NLINK),
        _ => None,
    }
}

/// Offset in bytes, from the start of the message, of the [`OpenOut`](crate::OpenOut) of a reply to
/// CREATE or TMPFILE: behind the entry.
pub const CREATE_OPEN_OFFSET: usize = 16 + 128;
const _: () = assert!(ENTRY_OFFSET == 16 && size_of::<EntryOut>() == 128);

/// One reply or notification as the daemon wrote it.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The header, copied out.
    pub header: OutHeader,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Checks the header against the buffer, as strictly as the kernel does, and splits the
    /// message.
    ///
    /// # Errors
    /// [`WireError::Short`] below 16 bytes, [`WireError::Length`] if the declared length is not
    /// exactly the buffer's.
    pub fn parse(buf: &'a [u8]) -> Result<Self, WireError> {
        let (header, body) = OutHeader::read_from_prefix(buf)
            .map_err(|_| WireError::Short { have: buf.len(), need: size_of::<OutHeader>() })?;
        if usize::try_from(header.len) != Ok(buf.len()) {
            return Err(WireError::Length { declared: header.len, have: buf.len() });
        }
        Ok(Reply { header, body })
    }

    /// The request that this answers; 0 for a notification.
    #[must_use]
    pub fn unique(&self) -> u64 {
        self.header.unique
    }

    /// Whether this is a notification; its code is then [`Reply::header`]`.error`.
    #[must_use]
    pub fn is_notification(&self) -> bool {
        self.header.unique == 0
    }

    /// The errno that the request failed with, positive; `None` for success and for a notification.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        if self.header.unique != 0 && self.header.error != 0 {
            Some(self.header.error.saturating_neg())
        } else {
            None
        }
    }

    /// Copies the structure at the start of the body; `None` if the body is shorter.
    #[must_use]
    pub fn body_as<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.body).ok().map(|(value, _)| value)
    }
}

/// Whether a successful reply to this request starts with an [`EntryOut`].
#[must_use]
pub const fn is_entry_reply(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::LOOKUP
            | Opcode::MKNOD
            | Opcode::MKDIR
            | Opcode::SYMLINK
            | Opcode::LINK
            | Opcode::CREATE
            | Opcode::TMPFILE
    )
}

/// Offset in bytes, from the start of the message, of the [`Attr`] in a successful reply to this
/// request; `None` if there is none.
#[must_use]
pub const fn attr_offset(opcode: Opcode) -> Option<usize> {
    const ENTRY: usize = ENTRY_OFFSET + offset_of!(EntryOut, attr);
    const ATTR: usize = ENTRY_OFFSET + offset_of!(AttrOut, attr);
    match opcode {
        Opcode::GETATTR | Opcode::SETATTR => Some(ATTR),
        _ if is_entry_reply(opcode) => Some(ENTRY),
        _ => None,
    }
}

/// Offset in bytes, from the start of the message, of the inode number (a `u64`) in a successful
/// reply to this request: that of the [`Attr`], or that of STATX.
#[must_use]
pub const fn ino_offset(opcode: Opcode) -> Option<usize> {
    const STATX: usize = ENTRY_OFFSET + offset_of!(StatxOut, stat) + offset_of!(Statx, ino);
    match opcode {
        Opcode::STATX => Some(STATX),
        _ => attr_offset(opcode),
    }
}

/// Offset in bytes, from the start of the message, of the [`OpenOut`](crate::OpenOut), and so of
/// its handle (a `u64`), in a successful reply to this request; `None` if there is none.
#[must_use]
pub const fn open_offset(opcode: Opcode) -> Option<usize> {
    match opcode {
        Opcode::OPEN | Opcode::OPENDIR => Some(ENTRY_OFFSET),
        Opcode::CREATE | Opcode::TMPFILE => Some(CREATE_OPEN_OFFSET),
        _ => None,
    }
}
