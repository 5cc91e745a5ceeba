//! Groups of flag bits and codes.

/// Feature bits of INIT, `FUSE_*` without the prefix, as one 64-bit word.
///
/// The low half travels in `flags`, the high half in `flags2`, which counts only with [`INIT_EXT`].
///
/// [`INIT_EXT`]: init_flags::INIT_EXT
pub mod init_flags {
    /// Several reads of one file at a time.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// The daemon keeps POSIX locks.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// Handles are sent with attribute requests.
    pub const FILE_OPS: u64 = 1 << 2;
    /// The daemon handles `O_TRUNC` at open.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// The daemon looks up `.` and `..`.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes larger than 4 KiB.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The daemon applies the umask.
    pub const DONT_MASK: u64 = 1 << 6;
    /// The device can be spliced to.
    pub const SPLICE_WRITE: u64 = 1 << 7;
    /// Pages may be moved into the cache.
    pub const SPLICE_MOVE: u64 = 1 << 8;
    /// The device can be spliced from.
    pub const SPLICE_READ: u64 = 1 << 9;
    /// The daemon keeps BSD locks.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// Ioctls on directories.
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    /// Cached data is dropped as attributes change.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// READDIRPLUS is used.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// READDIRPLUS is used where it pays.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct I/O is submitted asynchronously.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Writes are buffered in the page cache.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// OPEN may be refused with `ENOSYS`, once for all files.
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Lookups and listings of one directory run in parallel.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The daemon clears set-id bits and capabilities.
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    /// POSIX access control lists.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// Reading the device after an abort gives `ECONNABORTED`.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `InitOut::max_pages` is valid.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Link targets are cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// OPENDIR may be refused with `ENOSYS`, once for all directories.
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// Cached data is dropped only on request.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// `InitOut::map_alignment` is valid.
    pub const MAP_ALIGNMENT: u64 = 1 << 26;
    /// Directories may be submounts.
    pub const SUBMOUNTS: u64 = 1 << 27;
    /// The daemon clears set-id bits, second form.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR has the 16-byte form.
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// `flags2` is valid.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Never set.
    pub const INIT_RESERVED: u64 = 1 << 31;
    /// Security contexts come with new names.
    pub const SECURITY_CTX: u64 = 1 << 32;
    /// Direct access per file.
    pub const HAS_INODE_DAX: u64 = 1 << 33;
    /// Supplementary groups come with new names.
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    /// Entries can be expired by notification.
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    /// Shared mappings of direct I/O files.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Reads and writes may go to a backing file.
    pub const PASSTHROUGH: u64 = 1 << 37;
    /// Not exportable over NFS.
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// The RESEND notification is understood and [`UNIQUE_RESEND`](crate::UNIQUE_RESEND) is used.
    pub const HAS_RESEND: u64 = 1 << 39;
    /// Mounts may map ids.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests may travel over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
    /// `InitOut::request_timeout` is valid.
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// Bits of `SetattrIn::valid`: which fields are to be changed, `FATTR_*`.
pub mod fattr {
    /// `mode`.
    pub const MODE: u32 = 1 << 0;
    /// `uid`.
    pub const UID: u32 = 1 << 1;
    /// `gid`.
    pub const GID: u32 = 1 << 2;
    /// `size`: truncate or extend.
    pub const SIZE: u32 = 1 << 3;
    /// `atime`.
    pub const ATIME: u32 = 1 << 4;
    /// `mtime`.
    pub const MTIME: u32 = 1 << 5;
    /// `fh` is valid.
    pub const FH: u32 = 1 << 6;
    /// Access time becomes the daemon's now.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// Modification time becomes the daemon's now.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// `lock_owner` is valid.
    pub const LOCKOWNER: u32 = 1 << 9;
    /// `ctime`.
    pub const CTIME: u32 = 1 << 10;
    /// Clear the set-id bits.
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Bits of `OpenOut::open_flags`, `FOPEN_*`.
pub mod fopen {
    /// Bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keep what is cached.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The file has no seekable position.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The listing may be cached.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// The file has no position at all.
    pub const STREAM: u32 = 1 << 4;
    /// No FLUSH at close.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to one file may run in parallel.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// `backing_id` is valid and takes reads and writes.
    pub const PASSTHROUGH: u32 = 1 << 7;
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
