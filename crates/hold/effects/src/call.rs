//! The calls that are logged, and how doing one twice differs from doing it once.

/// A kind of call. The numbers are written into logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// open(2) that creates what must not exist (O_CREAT with O_EXCL).
    OpenNew = 1,
    /// open(2) with O_CREAT or O_TRUNC.
    Open = 2,
    /// mkdir(2).
    Mkdir = 3,
    /// mknod(2), mkfifo(3).
    Mknod = 4,
    /// link(2).
    Link = 5,
    /// symlink(2).
    Symlink = 6,
    /// unlink(2), remove(3) of a file.
    Unlink = 7,
    /// rmdir(2).
    Rmdir = 8,
    /// rename(2) and renameat2(2), but for the next.
    Rename = 9,
    /// renameat2(2) with RENAME_EXCHANGE.
    Exchange = 10,
    /// truncate(2), ftruncate(2).
    Truncate = 11,
    /// write(2), writev(2) at the descriptor's position.
    Write = 12,
    /// Any write to a file that was opened with O_APPEND.
    Append = 13,
    /// pwrite(2) and its kin.
    WriteAt = 14,
    /// fallocate(2), but for the next.
    Allocate = 15,
    /// fallocate(2) that moves what is behind the range.
    Shift = 16,
    /// copy_file_range(2), sendfile(2) into a file.
    Copy = 17,
    /// chmod(2) and its kin.
    Mode = 18,
    /// chown(2) and its kin.
    Owner = 19,
    /// utimensat(2) and its kin.
    Times = 20,
    /// setxattr(2) and its kin, but for the next.
    XattrSet = 21,
    /// setxattr(2) with XATTR_CREATE.
    XattrCreate = 22,
    /// removexattr(2) and its kin.
    XattrRemove = 23,
    /// send(2) and its kin, and write(2) to what is no file.
    Send = 24,
    /// open(2) with O_CREAT and without O_EXCL, and a mode by which its owner may not open the file
    /// again.
    OpenShut = 25,

    /// stat(2), statx(2) and their kin.
    Stat = 64,
    /// access(2) and its kin.
    Access = 65,
    /// readlink(2).
    ReadLink = 66,
    /// read(2) at the descriptor's position.
    Read = 67,
    /// pread(2) and its kin.
    ReadAt = 68,
    /// getxattr(2), listxattr(2) and their kin.
    Xattr = 69,
    /// statvfs(3), statfs(2).
    Statvfs = 70,

    /// A write to the image, in a transaction.
    Image = 128,
    /// fsync(2) of the image, in a transaction.
    Sync = 129,
}

/// All kinds.
pub const KINDS: [Kind; 34] = [
    Kind::OpenNew,
    Kind::Open,
    Kind::Mkdir,
    Kind::Mknod,
    Kind::Link,
    Kind::Symlink,
    Kind::Unlink,
    Kind::Rmdir,
    Kind::Rename,
    Kind::Exchange,
    Kind::Truncate,
    Kind::Write,
    Kind::Append,
    Kind::WriteAt,
    Kind::Allocate,
    Kind::Shift,
    Kind::Copy,
    Kind::Mode,
    Kind::Owner,
    Kind::Times,
    Kind::XattrSet,
    Kind::XattrCreate,
    Kind::XattrRemove,
    Kind::Send,
    Kind::OpenShut,
    Kind::Stat,
    Kind::Access,
    Kind::ReadLink,
    Kind::Read,
    Kind::ReadAt,
    Kind::Xattr,
    Kind::Statvfs,
    Kind::Image,
    Kind::Sync,
];

/// What to do about a call of which it is not known whether it was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// Make it again: the second time changes nothing.
    Same,
    /// Look at what it was about: that tells (see [`crate::probe`]).
    Probe,
    /// Nothing tells: what has gone to a connection is out of reach.
    Never,
}

impl Kind {
    /// The kind whose number is in a log.
    pub fn from_number(number: u32) -> Option<Self> {
        KINDS.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Whether the call changes something outside of the daemon.
    #[inline]
    pub fn is_effect(self) -> bool {
        (self as u32) < Self::Stat as u32
    }

    /// Whether it writes bytes to a file.
    #[inline]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Append | Self::WriteAt)
    }

    /// The name of the call in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenNew => "open(O_CREAT|O_EXCL)",
            Self::Open => "open",
            Self::Mkdir => "mkdir",
            Self::Mknod => "mknod",
            Self::Link => "link",
            Self::Symlink => "symlink",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::Exchange => "rename(RENAME_EXCHANGE)",
            Self::Truncate => "truncate",
            Self::Write => "write",
            Self::Append => "write(O_APPEND)",
            Self::WriteAt => "pwrite",
            Self::Allocate => "fallocate",
            Self::Shift => "fallocate(range)",
            Self::Copy => "copy_file_range",
            Self::Mode => "chmod",
            Self::Owner => "chown",
            Self::Times => "utimensat",
            Self::XattrSet => "setxattr",
            Self::XattrCreate => "setxattr(XATTR_CREATE)",
            Self::XattrRemove => "removexattr",
            Self::Send => "send",
            Self::OpenShut => "open(O_CREAT)",
            Self::Stat => "stat",
            Self::Access => "access",
            Self::ReadLink => "readlink",
            Self::Read => "read",
            Self::ReadAt => "pread",
            Self::Xattr => "getxattr",
            Self::Statvfs => "statvfs",
            Self::Image => "image write",
            Self::Sync => "image fsync",
        }
    }

    /// What to do about a call of this kind whose outcome is not known.
    pub fn twice(self) -> Twice {
        match self {
            Self::OpenNew
            | Self::OpenShut
            | Self::Mkdir
            | Self::Mknod
            | Self::Link
            | Self::Symlink
            | Self::Unlink
            | Self::Rmdir
            | Self::Rename
            | Self::Exchange
            | Self::Append
            | Self::Shift
            | Self::XattrCreate
            | Self::XattrRemove => Twice::Probe,
            Self::Send => Twice::Never,
            _ => Twice::Same,
        }
    }

    /// Whether a call of this kind gives a descriptor.
    #[inline]
    pub fn opens(self) -> bool {
        matches!(self, Self::OpenNew | Self::Open | Self::OpenShut)
    }

    /// Whether a call of this kind moves the position of its descriptor by its result.
    #[inline]
    pub fn moves(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }
}
