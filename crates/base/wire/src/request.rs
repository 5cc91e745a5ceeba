//! A checked view over one message from the kernel.

use zerocopy::FromBytes;

use crate::abi::{
    BatchForgetIn, CreateIn, ForgetOne, GetxattrIn, InHeader, IoctlIn, LinkIn, MkdirIn, MknodIn,
    OpenIn, Rename2In, RenameIn, SetxattrIn, SetxattrInShort,
};
use crate::error::WireError;
use crate::opcode::{CHANGES, Opcode};

/// The flag of an open that cuts a file to nothing, as in the kernel's `asm-generic/fcntl.h`.
pub const O_TRUNC: u32 = 0o1000;

/// Length in bytes of the header that starts a request.
pub const HEADER: usize = size_of::<InHeader>();

/// One request as the kernel wrote it: its header, and the rest of the message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The header, copied out.
    pub header: InHeader,
    /// What follows the header, up to the declared length.
    pub body: &'a [u8],
}

/// The NUL-terminated names of a request, without their NULs. Bytes, not text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names<'a> {
    /// The name, the old name of a rename, or the name of an extended attribute.
    pub first: Option<&'a [u8]>,
    /// The new name of a rename, or the target of a symbolic link.
    pub second: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// Checks the header against the buffer and splits the message.
    ///
    /// The buffer may be longer than the message; the excess is ignored.
    ///
    /// # Errors
    /// [`WireError::Short`] below 40 bytes, [`WireError::Length`] if the declared length is not
    /// within 40 and the buffer's length.
    pub fn parse(buf: &'a [u8]) -> Result<Self, WireError> {
        let (header, _) = InHeader::read_from_prefix(buf)
            .map_err(|_| WireError::Short { have: buf.len(), need: HEADER })?;
        usize::try_from(header.len)
            .ok()
            .and_then(|len| buf.get(HEADER..len))
            .map(|body| Request { header, body })
            .ok_or(WireError::Length { declared: header.len, have: buf.len() })
    }

    /// What is asked for.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.header.opcode)
    }

    /// Whether it changes the file system: [`CHANGES`], an OPEN with O_TRUNC, an IOCTL that hands
    /// data to the daemon (FS_IOC_SETFLAGS and the like; what only asks has none).
    #[must_use]
    pub fn changes(&self) -> bool {
        match self.opcode() {
            Opcode::OPEN => self.body_as::<OpenIn>().is_some_and(|open| open.flags & O_TRUNC != 0),
            Opcode::IOCTL => self.body_as::<IoctlIn>().is_some_and(|asked| asked.in_size > 0),
            opcode => CHANGES.has(opcode),
        }
    }

    /// Copies the structure at the start of the body; `None` if the body is shorter.
    ///
    /// The caller picks `T` by [`Request::opcode`]; nothing here can check that choice.
    #[must_use]
    pub fn body_as<T: FromBytes>(&self) -> Option<T> {
        T::read_from_prefix(self.body).ok().map(|(value, _)| value)
    }

    /// The names that this request carries; both `None` for a request without names.
    ///
    /// A name whose NUL is missing, or whose fixed part is cut short, is `None`. Layouts are those
    /// since 7.12; the form of SETXATTR is recognised as by [`Request::setxattr_is_ext`].
    #[must_use]
    pub fn names(&self) -> Names<'a> {
        self.names_with(self.setxattr_is_ext())
    }

    /// Like [`Request::names`], for a connection of which it is known whether `SETXATTR_EXT` was
    /// negotiated.
    #[must_use]
    pub fn names_with(&self, setxattr_ext: bool) -> Names<'a> {
        let (fixed, two) = match self.opcode() {
            Opcode::LOOKUP | Opcode::UNLINK | Opcode::RMDIR | Opcode::REMOVEXATTR => (0, false),
            Opcode::SYMLINK => (0, true),
            Opcode::MKNOD => (size_of::<MknodIn>(), false),
            Opcode::MKDIR => (size_of::<MkdirIn>(), false),
            Opcode::RENAME => (size_of::<RenameIn>(), true),
            Opcode::RENAME2 => (size_of::<Rename2In>(), true),
            Opcode::LINK => (size_of::<LinkIn>(), false),
            Opcode::CREATE | Opcode::TMPFILE => (size_of::<CreateIn>(), false),
            Opcode::GETXATTR => (size_of::<GetxattrIn>(), false),
            Opcode::SETXATTR => (setxattr_fixed(setxattr_ext), false),
            _ => return Names::default(),
        };
        let Some((first, rest)) = self.body.get(fixed..).and_then(take_name) else {
            return Names::default();
        };
        let second = if two { take_name(rest) } else { None };
        Names { first: Some(first), second: second.map(|(name, _)| name) }
    }

    /// The value of a SETXATTR; `None` for any other request and if it is cut short.
    #[must_use]
    pub fn xattr_value(&self) -> Option<&'a [u8]> {
        self.xattr_value_with(self.setxattr_is_ext())
    }

    /// Like [`Request::xattr_value`], for a connection of which it is known whether `SETXATTR_EXT`
    /// was negotiated.
    #[must_use]
    pub fn xattr_value_with(&self, setxattr_ext: bool) -> Option<&'a [u8]> {
        if self.opcode() != Opcode::SETXATTR {
            return None;
        }
        let size = self.body_as::<SetxattrInShort>()?.size;
        let (_, value) = self.body.get(setxattr_fixed(setxattr_ext)..).and_then(take_name)?;
        value.get(..usize::try_from(size).ok()?)
    }

    /// Whether a SETXATTR has the long form of its fixed part.
    ///
    /// Told from the message alone: fixed part, name and value must add up to the body's length,
    /// and they cannot do so in both forms at once, for the long form has a zero word where the
    /// short form would then have bytes 5 to 8 of a name. Where they add up in neither, that word
    /// decides. False for any other request.
    #[must_use]
    pub fn setxattr_is_ext(&self) -> bool {
        if self.opcode() != Opcode::SETXATTR {
            return false;
        }
        let Some(fixed) = self.body_as::<SetxattrIn>() else {
            return false;
        };
        let adds_up = |ext: bool| {
            let after_name = self.body.get(setxattr_fixed(ext)..).and_then(take_name);
            after_name.is_some_and(|(_, value)| usize::try_from(fixed.size) == Ok(value.len()))
        };
        fixed.padding == 0 && (adds_up(true) || !adds_up(false))
    }

    /// The items of a BATCH_FORGET with their offsets from the start of the message, in bytes.
    ///
    /// Empty for any other request; ends early if fewer items are there than were announced.
    pub fn forgets(&self) -> impl Iterator<Item = (usize, ForgetOne)> + use<'a> {
        let fixed = size_of::<BatchForgetIn>();
        let count = match self.opcode() {
            Opcode::BATCH_FORGET => self.body_as::<BatchForgetIn>().map_or(0, |b| b.count),
            _ => 0,
        };
        let items = self.body.get(fixed..).unwrap_or_default();
        let first = HEADER.saturating_add(fixed);
        items
            .chunks_exact(size_of::<ForgetOne>())
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .enumerate()
            .filter_map(move |(i, chunk)| {
                let at = i.checked_mul(size_of::<ForgetOne>())?.checked_add(first)?;
                Some((at, ForgetOne::read_from_bytes(chunk).ok()?))
            })
    }

    /// Whether the kernel delivered this request before, [`UNIQUE_RESEND`](crate::UNIQUE_RESEND).
    #[must_use]
    pub fn is_resent(&self) -> bool {
        crate::unique::Unique::is_marked(self.header.unique)
    }

    /// One human line about the request and its arguments, for crash reports; see
    /// [`crate::describe`].
    #[must_use]
    pub fn describe(&self) -> String {
        crate::describe::describe(self)
    }
}

/// Length in bytes of the fixed part of a SETXATTR.
fn setxattr_fixed(ext: bool) -> usize {
    if ext { size_of::<SetxattrIn>() } else { size_of::<SetxattrInShort>() }
}

/// Splits at the first NUL, which is dropped.
fn take_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == 0)?;
    let (name, rest) = bytes.split_at_checked(end)?;
    Some((name, rest.get(1..)?))
}
