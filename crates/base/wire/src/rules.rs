//! What a reply has to be like: the rules by which the kernel would refuse it, and by which a
//! daemon that breaks them has a fault (Membrane, section 4.2).
//!
//! Only what no sound daemon does is against the rules. A second answer to a request, an answer to
//! INTERRUPT, a listing whose last entry is cut short, or ENOSYS to anything are odd, and are not.

use std::fmt;
use std::mem::offset_of;

use zerocopy::FromBytes;

use crate::abi::{
    Attr, AttrOut, BmapOut, CopyFileRangeOut, Dirent, DirentPlus, EntryOut, GetxattrIn,
    GetxattrOut, IoctlIn, IoctlOut, LkOut, LseekOut, MknodIn, NAME_MAX, OpenOut, OutHeader,
    PollOut, ROOT_ID, ReadIn, StatfsOut, StatxOut, WriteIn, WriteOut,
};
use crate::opcode::Opcode;
use crate::request::Request;

const HEADER: u32 = size_of::<OutHeader>() as u32;
/// What the kernel has as error numbers: 0 down to this (`-ERESTARTSYS` is its own).
const LEAST_ERROR: i32 = -511;
/// The longest target of a symbolic link, in bytes (PATH_MAX).
const LINK_MAX: u32 = 4096;
/// The least room for the output of an ioctl: a page of the largest kind that Linux has.
const IOCTL_ROOM: u32 = 64 << 10;
const DIRECTORY: u32 = 4;
const FILE: u32 = 8;
const LINK: u32 = 10;

/// What a reply must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Its header says another length than it has, or it is shorter than its header.
    Header,
    /// The error number is none.
    Errno,
    /// A failure has a body.
    Failure,
    /// It is longer or shorter than the request allows.
    Length,
    /// More was written than was to be.
    Count,
    /// Something was made, and has no node, or the root's.
    Node,
    /// The mode is of no type that there is.
    Type,
    /// The node is of another type than was asked for.
    Asked,
    /// The node is of another type than it was.
    Known,
    /// The size is one that no file can have.
    Size,
    /// An entry of a listing has no name, or one that cannot be.
    Entry,
    /// The kernel has given out no such request.
    Unique,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "its header says another length than it has",
            Self::Errno => "its error number is out of range",
            Self::Failure => "it fails and has a body",
            Self::Length => "its length is not one that such a reply can have",
            Self::Count => "it says that more was written than was to be",
            Self::Node => "it has no node for what was made",
            Self::Type => "its node is of no type that there is",
            Self::Asked => "its node is of another type than was asked for",
            Self::Known => "its node is of another type than it was before",
            Self::Size => "its node has a size that no file can have",
            Self::Entry => "it has an entry without a name, or with one that cannot be",
            Self::Unique => "it answers a request that the kernel has not made",
        })
    }
}

/// How long a successful reply may be, header included, and whether it begins with a number of
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    least: u32,
    most: u32,
    /// The reply is [`WriteOut`], which says no more than this.
    count: Option<u32>,
}

/// The bit of a word that says that there is a count.
const COUNTS: u64 = 1 << 63;
const WRITTEN: u32 = HEADER.wrapping_add(size_of::<WriteOut>() as u32);

impl Shape {
    /// Anything goes.
    pub const ANY: Self = Self { least: 0, most: u32::MAX, count: None };

    /// A header and `bytes` more.
    const fn exactly(bytes: usize) -> Self {
        let length = HEADER.saturating_add(bytes as u32);
        Self { least: length, most: length, count: None }
    }

    const fn up_to(bytes: u32) -> Self {
        Self { least: HEADER, most: HEADER.saturating_add(bytes), count: None }
    }

    /// That of replies to `request`.
    #[must_use]
    #[inline]
    pub fn of(request: &Request<'_>) -> Self {
        Self::of_body(request.opcode(), request.body)
    }

    /// The same; of the request's body its first 40 bytes will do.
    #[must_use]
    pub fn of_body(opcode: Opcode, body: &[u8]) -> Self {
        fn read<T: FromBytes>(body: &[u8]) -> Option<T> {
            T::read_from_prefix(body).ok().map(|(value, _)| value)
        }
        match opcode {
            Opcode::READ | Opcode::READDIR | Opcode::READDIRPLUS => {
                read::<ReadIn>(body).map_or(Self::ANY, |asked| Self::up_to(asked.size))
            }
            Opcode::WRITE => read::<WriteIn>(body).map_or(Self::ANY, |asked| Self {
                count: Some(asked.size),
                ..Self::exactly(size_of::<WriteOut>())
            }),
            Opcode::GETXATTR | Opcode::LISTXATTR => match read::<GetxattrIn>(body) {
                Some(asked) if asked.size == 0 => Self::exactly(size_of::<GetxattrOut>()),
                Some(asked) => Self::up_to(asked.size),
                None => Self::ANY,
            },
            Opcode::IOCTL => read::<IoctlIn>(body).map_or(Self::ANY, |asked| {
                let least = Self::exactly(size_of::<IoctlOut>()).least;
                Self {
                    least,
                    most: least.saturating_add(asked.out_size.max(IOCTL_ROOM)),
                    count: None,
                }
            }),
            _ => Self::of_opcode(opcode),
        }
    }

    /// The same for requests of which the opcode tells; for others anything goes.
    #[must_use]
    pub const fn of_opcode(opcode: Opcode) -> Self {
        const ENTRY: usize = size_of::<EntryOut>();
        const CREATED: usize = ENTRY + size_of::<OpenOut>();
        match opcode {
            Opcode::LOOKUP | Opcode::MKNOD | Opcode::MKDIR | Opcode::SYMLINK | Opcode::LINK => {
                Self::exactly(ENTRY)
            }
            Opcode::CREATE | Opcode::TMPFILE => Self::exactly(CREATED),
            Opcode::OPEN | Opcode::OPENDIR => Self::exactly(size_of::<OpenOut>()),
            Opcode::GETATTR | Opcode::SETATTR => Self::exactly(size_of::<AttrOut>()),
            Opcode::STATX => Self::exactly(size_of::<StatxOut>()),
            Opcode::READLINK => Self::up_to(LINK_MAX),
            Opcode::STATFS => Self::exactly(size_of::<StatfsOut>()),
            Opcode::COPY_FILE_RANGE => Self::exactly(size_of::<WriteOut>()),
            Opcode::COPY_FILE_RANGE_64 => Self::exactly(size_of::<CopyFileRangeOut>()),
            Opcode::LSEEK => Self::exactly(size_of::<LseekOut>()),
            Opcode::POLL => Self::exactly(size_of::<PollOut>()),
            Opcode::BMAP => Self::exactly(size_of::<BmapOut>()),
            Opcode::GETLK => Self::exactly(size_of::<LkOut>()),
            Opcode::UNLINK
            | Opcode::RMDIR
            | Opcode::RENAME
            | Opcode::RENAME2
            | Opcode::RELEASE
            | Opcode::RELEASEDIR
            | Opcode::FLUSH
            | Opcode::FSYNC
            | Opcode::FSYNCDIR
            | Opcode::SYNCFS
            | Opcode::SETXATTR
            | Opcode::REMOVEXATTR
            | Opcode::ACCESS
            | Opcode::SETLK
            | Opcode::SETLKW
            | Opcode::FALLOCATE => Self::exactly(0),
            _ => Self::ANY,
        }
    }

    /// Whether [`Shape::of_opcode`] knows as much as [`Shape::of_body`].
    #[must_use]
    pub const fn is_in_body(opcode: Opcode) -> bool {
        matches!(
            opcode,
            Opcode::READ
                | Opcode::READDIR
                | Opcode::READDIRPLUS
                | Opcode::WRITE
                | Opcode::GETXATTR
                | Opcode::LISTXATTR
                | Opcode::IOCTL
        )
    }

    /// All of it in one word.
    #[must_use]
    #[inline]
    pub fn to_word(self) -> u64 {
        match self.count {
            Some(count) => COUNTS | u64::from(count),
            None => u64::from(self.least & 0x7fff_ffff) << 32 | u64::from(self.most),
        }
    }

    /// And back.
    #[must_use]
    #[inline]
    pub fn from_word(word: u64) -> Self {
        if word & COUNTS != 0 {
            return Self { least: WRITTEN, most: WRITTEN, count: Some(word as u32) };
        }
        Self { least: (word >> 32) as u32, most: word as u32, count: None }
    }

    /// Which rule a reply with this header breaks, if one. `body` is what is behind that, as far as
    /// it can be seen.
    #[must_use]
    #[inline]
    pub fn broken(&self, header: &OutHeader, body: &[u8]) -> Option<Rule> {
        if header.error != 0 {
            return broken_failure(header);
        }
        if header.len < self.least || header.len > self.most {
            return Some(Rule::Length);
        }
        match (self.count, body.first_chunk()) {
            (Some(most), Some(written)) if u32::from_ne_bytes(*written) > most => Some(Rule::Count),
            _ => None,
        }
    }
}

/// Which rule a header breaks that is that of a message of `total` bytes, whatever it is about.
#[must_use]
#[inline]
pub fn broken_header(header: &OutHeader, total: usize) -> Option<Rule> {
    if header.len as usize != total || header.len < HEADER {
        return Some(Rule::Header);
    }
    // Of a notification that is its code.
    if header.error != 0 && header.unique != 0 { broken_failure(header) } else { None }
}

#[inline]
fn broken_failure(header: &OutHeader) -> Option<Rule> {
    if !(LEAST_ERROR..=0).contains(&header.error) {
        return Some(Rule::Errno);
    }
    (header.len != HEADER).then_some(Rule::Failure)
}

/// The type in a mode, as `DT_*` has it, if it is one.
#[must_use]
pub const fn kind_of(mode: u32) -> Option<u32> {
    let kind = (mode >> 12) & 15;
    if matches!(kind, 1 | 2 | 4 | 6 | 8 | 10 | 12) { Some(kind) } else { None }
}

/// Which rule the attributes `mode` and `size` break. `known`: the type that the node has, if that
/// cannot change.
#[must_use]
#[inline]
pub fn broken_attr(mode: u32, size: u64, known: Option<u32>) -> Option<Rule> {
    let Some(kind) = kind_of(mode) else { return Some(Rule::Type) };
    if known.is_some_and(|known| known != kind) {
        return Some(Rule::Known);
    }
    (size > i64::MAX as u64).then_some(Rule::Size)
}

/// Which rule the body of a successful reply to GETATTR or SETATTR breaks; see [`broken_attr`].
#[must_use]
#[inline]
pub fn broken_attr_reply(body: &[u8], known: Option<u32>) -> Option<Rule> {
    const SIZE: usize = offset_of!(AttrOut, attr) + offset_of!(Attr, size);
    const MODE: usize = offset_of!(AttrOut, attr) + offset_of!(Attr, mode);
    let size = crate::get_u64(body, SIZE)?;
    let mode = body.get(MODE..)?.first_chunk()?;
    broken_attr(u32::from_ne_bytes(*mode), size, known)
}

/// Which rule an entry breaks that is in the reply to `opcode`, of whose body `asked` is the
/// beginning. `linked`: the type of what LINK was to link, if that cannot change.
#[must_use]
pub fn broken_entry(
    opcode: Opcode,
    asked: &[u8],
    entry: &EntryOut,
    linked: Option<u32>,
) -> Option<Rule> {
    if entry.nodeid == 0 && opcode == Opcode::LOOKUP {
        return None; // there is no such name, and that may be remembered
    }
    if matches!(entry.nodeid, 0 | ROOT_ID) && opcode != Opcode::LOOKUP {
        return Some(Rule::Node);
    }
    let known = if opcode == Opcode::LINK { linked } else { None };
    if let Some(rule) = broken_attr(entry.attr.mode, entry.attr.size, known) {
        return Some(rule);
    }
    let wanted = match opcode {
        Opcode::MKDIR => DIRECTORY,
        Opcode::SYMLINK => LINK,
        Opcode::CREATE | Opcode::TMPFILE => FILE,
        Opcode::MKNOD => {
            let (mknod, _) = MknodIn::read_from_prefix(asked).ok()?;
            if mknod.mode >> 12 == 0 { FILE } else { kind_of(mknod.mode)? }
        }
        _ => return None,
    };
    (kind_of(entry.attr.mode) != Some(wanted)).then_some(Rule::Asked)
}

/// Which rule a listing breaks: the body of a successful reply to READDIR or READDIRPLUS (`plus`).
#[must_use]
pub fn broken_listing(body: &[u8], plus: bool) -> Option<Rule> {
    let (fixed, at) = if plus {
        (size_of::<DirentPlus>(), offset_of!(DirentPlus, dirent))
    } else {
        (size_of::<Dirent>(), 0)
    };
    let mut rest = body;
    // The last one may be cut short: it is asked for again.
    while rest.len() >= fixed {
        let at = at.checked_add(offset_of!(Dirent, namelen))?;
        let length = u32::from_ne_bytes(*rest.get(at..)?.first_chunk()?) as usize;
        if length == 0 || length > NAME_MAX {
            return Some(Rule::Entry);
        }
        let record = fixed.checked_add(length)?.checked_next_multiple_of(8)?;
        let (record, behind) = rest.split_at_checked(record)?;
        if record.get(fixed..)?.get(..length)?.contains(&b'/') {
            return Some(Rule::Entry);
        }
        rest = behind;
    }
    None
}
