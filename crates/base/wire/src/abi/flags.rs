//! Groups of flag bits and codes.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A word of flags, as it is in messages. Those that have no name here are kept as they are.
macro_rules! flags {
    ($(#[$about:meta])* $name:ident: $bits:ty { $($flags:tt)* }) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
        )]
        #[repr(transparent)]
        pub struct $name($bits);

        bitflags! {
            impl $name: $bits {
                $($flags)*
                const _ = !0;
            }
        }
    };
}

flags! {
    /// Feature bits of INIT, `FUSE_*` without the prefix, as one 64-bit word.
    ///
    /// The low half travels in `flags`, the high half in `flags2`, which counts only with
    /// [`INIT_EXT`](Self::INIT_EXT).
    InitFlags: u64 {
        /// Several reads of one file at a time.
        const ASYNC_READ = 1 << 0;
        /// The daemon keeps POSIX locks.
        const POSIX_LOCKS = 1 << 1;
        /// Handles are sent with attribute requests.
        const FILE_OPS = 1 << 2;
        /// The daemon handles `O_TRUNC` at open.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// The daemon looks up `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes larger than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The daemon applies the umask.
        const DONT_MASK = 1 << 6;
        /// The device can be spliced to.
        const SPLICE_WRITE = 1 << 7;
        /// Pages may be moved into the cache.
        const SPLICE_MOVE = 1 << 8;
        /// The device can be spliced from.
        const SPLICE_READ = 1 << 9;
        /// The daemon keeps BSD locks.
        const FLOCK_LOCKS = 1 << 10;
        /// Ioctls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached data is dropped as attributes change.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS is used.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS is used where it pays.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O is submitted asynchronously.
        const ASYNC_DIO = 1 << 15;
        /// Writes are buffered in the page cache.
        const WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be refused with `ENOSYS`, once for all files.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of one directory run in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The daemon clears set-id bits and capabilities.
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX access control lists.
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort gives `ECONNABORTED`.
        const ABORT_ERROR = 1 << 21;
        /// `InitOut::max_pages` is valid.
        const MAX_PAGES = 1 << 22;
        /// Link targets are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be refused with `ENOSYS`, once for all directories.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached data is dropped only on request.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `InitOut::map_alignment` is valid.
        const MAP_ALIGNMENT = 1 << 26;
        /// Directories may be submounts.
        const SUBMOUNTS = 1 << 27;
        /// The daemon clears set-id bits, second form.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has the 16-byte form.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid.
        const INIT_EXT = 1 << 30;
        /// Never set.
        const INIT_RESERVED = 1 << 31;
        /// Security contexts come with new names.
        const SECURITY_CTX = 1 << 32;
        /// Direct access per file.
        const HAS_INODE_DAX = 1 << 33;
        /// Supplementary groups come with new names.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Entries can be expired by notification.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of direct I/O files.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes may go to a backing file.
        const PASSTHROUGH = 1 << 37;
        /// Not exportable over NFS.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The RESEND notification is understood and [`UNIQUE_RESEND`](crate::UNIQUE_RESEND) is
        /// used.
        const HAS_RESEND = 1 << 39;
        /// Mounts may map ids.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests may travel over io_uring.
        const OVER_IO_URING = 1 << 41;
        /// `InitOut::request_timeout` is valid.
        const REQUEST_TIMEOUT = 1 << 42;
    }
}

flags! {
    /// Bits of `SetattrIn::valid`: which fields are to be changed, `FATTR_*`.
    SetattrValid: u32 {
        /// `mode`.
        const MODE = 1 << 0;
        /// `uid`.
        const UID = 1 << 1;
        /// `gid`.
        const GID = 1 << 2;
        /// `size`: truncate or extend.
        const SIZE = 1 << 3;
        /// `atime`.
        const ATIME = 1 << 4;
        /// `mtime`.
        const MTIME = 1 << 5;
        /// `fh` is valid.
        const FH = 1 << 6;
        /// Access time becomes the daemon's now.
        const ATIME_NOW = 1 << 7;
        /// Modification time becomes the daemon's now.
        const MTIME_NOW = 1 << 8;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 9;
        /// `ctime`.
        const CTIME = 1 << 10;
        /// Clear the set-id bits.
        const KILL_SUIDGID = 1 << 11;
    }
}

flags! {
    /// Bits of `OpenOut::open_flags`, `FOPEN_*`.
    FopenFlags: u32 {
        /// Bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Keep what is cached.
        const KEEP_CACHE = 1 << 1;
        /// The file has no seekable position.
        const NONSEEKABLE = 1 << 2;
        /// The listing may be cached.
        const CACHE_DIR = 1 << 3;
        /// The file has no position at all.
        const STREAM = 1 << 4;
        /// No FLUSH at close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one file may run in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// `backing_id` is valid and takes reads and writes.
        const PASSTHROUGH = 1 << 7;
    }
}

/// Notification codes, `enum fuse_notify_code`; they travel in `OutHeader::error` with `unique` 0.
pub mod notify {
    /// A polled file is ready.
    pub const POLL: i32 = 1;
    /// Drop cached data and attributes of a node.
    pub const INVAL_INODE: i32 = 2;
    /// Drop a cached name.
    pub const INVAL_ENTRY: i32 = 3;
    /// Put data into the page cache.
    pub const STORE: i32 = 4;
    /// Ask for data of the page cache.
    pub const RETRIEVE: i32 = 5;
    /// A name was removed.
    pub const DELETE: i32 = 6;
    /// Deliver all unanswered requests again.
    pub const RESEND: i32 = 7;
    /// All cached names are stale.
    pub const INC_EPOCH: i32 = 8;
    /// Try to forget the listed nodes.
    pub const PRUNE: i32 = 9;
}
