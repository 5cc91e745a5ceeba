//! The dialects of protocol 7: what is shorter for a daemon that answered INIT with an old minor
//! version.
//!
//! Kernel and daemon speak the minor that the daemon has answered with, whatever it is. Structures
//! grew, always at their end, and the kernel leaves out what a daemon of an old minor does not
//! know, and expects replies without it: exactly so long, no longer. [`GROWN`] is all of it
//! (fs/fuse of Linux 6.18: `fuse_adjust_compat` in dev.c, `fuse_write_args_fill` in file.c). What
//! belay keeps and reasons about is the newest form; messages are made wider when they come in, and
//! narrow again when they go out.
//!
//! What else depends on the minor changes no length of what belay makes or reads: the reply to INIT
//! (8 bytes of body before 7.5, 24 before 7.23; always of variable length), BATCH_FORGET (from
//! 7.16), RENAME2 (from 7.23), the vectors in a reply to IOCTL (before 7.16). SETXATTR goes by a
//! flag of INIT, see [`Request::setxattr_is_ext`](crate::Request::setxattr_is_ext).

use zerocopy::FromBytes;

use crate::abi::{InHeader, InitOut, OutHeader};
use crate::build::set_length;
use crate::opcode::Opcode;
use crate::reply::Reply;

/// A structure that grew.
#[derive(Clone, Copy, Debug)]
pub struct Grown {
    /// The first minor that has all of it.
    pub since: u32,
    /// Whose body begins with it.
    pub opcode: Opcode,
    /// In the reply; else in the request.
    pub reply: bool,
    /// Length before, in bytes.
    pub old: usize,
    /// Length since, in bytes.
    pub new: usize,
}

const fn request(since: u32, opcode: Opcode, old: usize, new: usize) -> Grown {
    Grown { since, opcode, reply: false, old, new }
}

const fn reply(since: u32, opcode: Opcode, old: usize, new: usize) -> Grown {
    Grown { since, opcode, reply: true, old, new }
}

/// All that grew. An opcode is in it once for each direction at most.
pub const GROWN: [Grown; 12] = [
    reply(4, Opcode::STATFS, 48, 80),
    reply(9, Opcode::LOOKUP, 120, 128),
    reply(9, Opcode::CREATE, 120, 128),
    reply(9, Opcode::MKNOD, 120, 128),
    reply(9, Opcode::MKDIR, 120, 128),
    reply(9, Opcode::SYMLINK, 120, 128),
    reply(9, Opcode::LINK, 120, 128),
    reply(9, Opcode::GETATTR, 96, 104),
    reply(9, Opcode::SETATTR, 96, 104),
    request(9, Opcode::WRITE, 24, 40),
    request(12, Opcode::CREATE, 8, 16),
    request(12, Opcode::MKNOD, 8, 16),
];

/// The first minor for which nothing in [`GROWN`] is shorter.
const WHOLE_SINCE: u32 = 12;
const IN: usize = size_of::<InHeader>();
const OUT: usize = size_of::<OutHeader>();

/// What kernel and daemon speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    minor: u32,
}

impl Default for Dialect {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl Dialect {
    /// That of daemons of any minor from 12 on.
    pub const NEWEST: Self = Self { minor: u32::MAX };

    /// That of a daemon that has answered INIT with this minor.
    #[must_use]
    pub const fn of_minor(minor: u32) -> Self {
        Self { minor }
    }

    /// That of a daemon that has answered INIT with this message. One that is no such answer counts
    /// as the newest's.
    #[must_use]
    pub fn of_init(message: &[u8]) -> Self {
        let init = Reply::parse(message).ok().filter(|reply| reply.header.error == 0);
        init.and_then(|reply| InitOut::from_prefix(reply.body))
            .map_or(Self::NEWEST, |init| Self::of_minor(init.minor))
    }

    /// Whether every message is of its newest form.
    #[must_use]
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.minor >= WHOLE_SINCE
    }

    fn grown(self, opcode: Opcode, reply: bool) -> Option<Grown> {
        if self.is_whole() {
            return None;
        }
        GROWN.into_iter().find(|g| g.opcode == opcode && g.reply == reply && self.minor < g.since)
    }

    /// Whether replies to this request are shorter than their newest form.
    #[must_use]
    pub fn shortens_reply(self, opcode: Opcode) -> bool {
        self.grown(opcode, true).is_some()
    }

    /// The newest form of a request, if it is of another.
    #[must_use]
    pub fn widen_request(self, message: &[u8]) -> Option<Vec<u8>> {
        let grown = self.grown(opcode_of(message)?, false)?;
        widened(message, IN, grown)
    }

    /// The daemon's form of a request of the newest form, if that is another.
    #[must_use]
    pub fn narrow_request(self, message: &[u8]) -> Option<Vec<u8>> {
        let grown = self.grown(opcode_of(message)?, false)?;
        narrowed(message, IN, grown)
    }

    /// The newest form of a successful reply to `opcode`, if it is of another. A reply that is not
    /// exactly as long as this daemon's must be is made one that no daemon's is, so that it is
    /// found out: the kernel would refuse it.
    #[must_use]
    pub fn widen_reply(self, opcode: Opcode, message: &[u8]) -> Option<Vec<u8>> {
        let grown = self.grown(opcode, true)?;
        let (header, _) = OutHeader::read_from_prefix(message).ok()?;
        if header.error != 0 {
            return None;
        }
        let behind = if opcode == Opcode::CREATE { size_of::<crate::abi::OpenOut>() } else { 0 };
        if message.len() == OUT.checked_add(grown.old)?.checked_add(behind)? {
            return widened(message, OUT, grown);
        }
        let mut header = message.get(..OUT)?.to_vec();
        header.resize(OUT.checked_add(1)?, 0);
        set_length(&mut header, 0);
        Some(header)
    }

    /// The kernel's form of a reply of the newest form to `opcode`, if that is another.
    #[must_use]
    pub fn narrow_reply(self, opcode: Opcode, message: &[u8]) -> Option<Vec<u8>> {
        let grown = self.grown(opcode, true)?;
        narrowed(message, OUT, grown)
    }
}

fn opcode_of(message: &[u8]) -> Option<Opcode> {
    message.get(4..)?.first_chunk().map(|word| Opcode(u32::from_ne_bytes(*word)))
}

/// Puts zeros where the body, which begins at `at`, lacks something. `None` if it is shorter than
/// that.
fn widened(message: &[u8], at: usize, grown: Grown) -> Option<Vec<u8>> {
    let (old, rest) = message.split_at_checked(at.checked_add(grown.old)?)?;
    let mut wide = old.to_vec();
    wide.resize(at.checked_add(grown.new)?, 0);
    wide.extend_from_slice(rest);
    relength(&mut wide, message, grown.new.checked_sub(grown.old)?, true)?;
    Some(wide)
}

/// And takes it out.
fn narrowed(message: &[u8], at: usize, grown: Grown) -> Option<Vec<u8>> {
    let rest = message.get(at.checked_add(grown.new)?..)?;
    let mut narrow = message.get(..at.checked_add(grown.old)?)?.to_vec();
    narrow.extend_from_slice(rest);
    relength(&mut narrow, message, grown.new.checked_sub(grown.old)?, false)?;
    Some(narrow)
}

/// The declared length changes by as much as the message does: data may be elsewhere that come
/// behind it.
fn relength(message: &mut [u8], before: &[u8], by: usize, more: bool) -> Option<()> {
    let by = u32::try_from(by).ok()?;
    let len = u32::from_ne_bytes(*before.first_chunk()?);
    let len = if more { len.checked_add(by)? } else { len.checked_sub(by)? };
    *message.first_chunk_mut()? = len.to_ne_bytes();
    Some(())
}
