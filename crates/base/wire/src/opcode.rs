//! Request numbers, `enum fuse_opcode` of `include/uapi/linux/fuse.h`.

use std::fmt;

/// The number that says what a request asks for, field `opcode` of `struct fuse_in_header`.
///
/// Any value is representable, known or not.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Opcode(pub u32);

macro_rules! opcodes {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal;)*) => {
        impl Opcode {
            $($(#[doc = $doc])* pub const $name: Opcode = Opcode($value);)*

            /// Every opcode up to Linux 6.18 (protocol 7.45), in ascending order.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name),*];

            /// The kernel's name without its `FUSE_` prefix, or `"UNKNOWN"`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

opcodes! {
    /// Find a name in a directory; counts as one reference to the node.
    LOOKUP = 1;
    /// Drop references to a node. No reply.
    FORGET = 2;
    /// Read attributes.
    GETATTR = 3;
    /// Change attributes, truncate included.
    SETATTR = 4;
    /// Read a symbolic link's target.
    READLINK = 5;
    /// Make a symbolic link.
    SYMLINK = 6;
    /// Make a file, device, pipe or socket.
    MKNOD = 8;
    /// Make a directory.
    MKDIR = 9;
    /// Remove a name that is not a directory.
    UNLINK = 10;
    /// Remove an empty directory.
    RMDIR = 11;
    /// Move a name, no flags.
    RENAME = 12;
    /// Make a hard link.
    LINK = 13;
    /// Open a file.
    OPEN = 14;
    /// Read file data.
    READ = 15;
    /// Write file data.
    WRITE = 16;
    /// Read file system totals.
    STATFS = 17;
    /// Last close of an open file.
    RELEASE = 18;
    /// Make a file durable.
    FSYNC = 20;
    /// Set an extended attribute.
    SETXATTR = 21;
    /// Read an extended attribute or its size.
    GETXATTR = 22;
    /// List extended attribute names.
    LISTXATTR = 23;
    /// Remove an extended attribute.
    REMOVEXATTR = 24;
    /// One descriptor of an open file was closed.
    FLUSH = 25;
    /// Negotiate version and features.
    INIT = 26;
    /// Open a directory.
    OPENDIR = 27;
    /// List a directory.
    READDIR = 28;
    /// Last close of an open directory.
    RELEASEDIR = 29;
    /// Make a directory durable.
    FSYNCDIR = 30;
    /// Test for a lock.
    GETLK = 31;
    /// Set or drop a lock, without waiting.
    SETLK = 32;
    /// Set a lock, waiting for it.
    SETLKW = 33;
    /// Check permissions.
    ACCESS = 34;
    /// Make and open a file in one step.
    CREATE = 35;
    /// The caller of another request was signalled. No reply in the usual case.
    INTERRUPT = 36;
    /// Map a file block to a device block.
    BMAP = 37;
    /// The file system is going away.
    DESTROY = 38;
    /// Device control.
    IOCTL = 39;
    /// Ask for readiness.
    POLL = 40;
    /// Data the daemon asked for by a RETRIEVE notification. No reply.
    NOTIFY_REPLY = 41;
    /// Drop references to many nodes. No reply.
    BATCH_FORGET = 42;
    /// Allocate or punch file space.
    FALLOCATE = 43;
    /// List a directory; each entry but dot and dot-dot counts as a lookup.
    READDIRPLUS = 44;
    /// Move a name, with flags.
    RENAME2 = 45;
    /// Find data or holes.
    LSEEK = 46;
    /// Copy between files; the count in the reply is 32 bits wide.
    COPY_FILE_RANGE = 47;
    /// Map file data into a DAX window.
    SETUPMAPPING = 48;
    /// Unmap parts of a DAX window.
    REMOVEMAPPING = 49;
    /// Make the whole file system durable.
    SYNCFS = 50;
    /// Make and open a file without a name.
    TMPFILE = 51;
    /// Read extended attributes of a node in statx form.
    STATX = 52;
    /// Copy between files; the count in the reply is 64 bits wide. Since 7.45.
    COPY_FILE_RANGE_64 = 53;
    /// Negotiate a character device; never seen on a mount.
    CUSE_INIT = 4096;
}

/// Requests that change the file system, so that to do one twice may differ from once. (An OPEN
/// with O_TRUNC does as well.)
pub const CHANGES: OpcodeSet = OpcodeSet::new(&[
    Opcode::SETATTR,
    Opcode::SYMLINK,
    Opcode::MKNOD,
    Opcode::MKDIR,
    Opcode::UNLINK,
    Opcode::RMDIR,
    Opcode::RENAME,
    Opcode::RENAME2,
    Opcode::LINK,
    Opcode::WRITE,
    Opcode::SETXATTR,
    Opcode::REMOVEXATTR,
    Opcode::CREATE,
    Opcode::TMPFILE,
    Opcode::FALLOCATE,
    Opcode::COPY_FILE_RANGE,
    Opcode::COPY_FILE_RANGE_64,
]);

/// Some opcodes below 64, asked for without a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeSet(u64);

impl OpcodeSet {
    /// Those of `list`; none of them may be above 63.
    #[must_use]
    pub const fn new(list: &[Opcode]) -> Self {
        let mut bits = 0;
        let mut rest = list;
        while let [first, others @ ..] = rest {
            assert!(first.0 < 64);
            bits |= 1 << first.0;
            rest = others;
        }
        Self(bits)
    }

    /// Whether `opcode` is one of them.
    #[inline]
    #[must_use]
    pub const fn has(self, opcode: Opcode) -> bool {
        opcode.0 < 64 && self.0 >> opcode.0 & 1 != 0
    }
}

impl Opcode {
    /// Whether this is one of [`Opcode::ALL`].
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(self.0, 1..=6 | 8..=18 | 20..=53 | 4096)
    }

    /// Whether the kernel waits for a reply to this request.
    ///
    /// False for FORGET, BATCH_FORGET and NOTIFY_REPLY, and for INTERRUPT, which a daemon answers
    /// only to refuse it (`EAGAIN`, `ENOSYS`).
    #[must_use]
    pub const fn expects_reply(self) -> bool {
        !matches!(self, Self::FORGET | Self::BATCH_FORGET | Self::NOTIFY_REPLY | Self::INTERRUPT)
    }
}

/// The name, or `UNKNOWN(number)`.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() { f.pad(self.name()) } else { f.pad(&format!("UNKNOWN({})", self.0)) }
    }
}
