//! Attributes of nodes and of the file system.

use super::SetattrValid;

wire! {
    /// `struct fuse_attr`: attributes of a node.
    Attr [88] {
        /// Inode number as applications see it; need not be the node id.
        ino: u64,
        /// Size.
        size: u64,
        /// Space taken, in units of 512 bytes.
        blocks: u64,
        /// Access time.
        atime: u64,
        /// Modification time.
        mtime: u64,
        /// Change time.
        ctime: u64,
        /// Access time, nanoseconds.
        atimensec: u32,
        /// Modification time, nanoseconds.
        mtimensec: u32,
        /// Change time, nanoseconds.
        ctimensec: u32,
        /// Type and permissions.
        mode: u32,
        /// Number of hard links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device node.
        rdev: u32,
        /// Preferred I/O size.
        blksize: u32,
        /// [`ATTR_SUBMOUNT`](super::ATTR_SUBMOUNT), [`ATTR_DAX`](super::ATTR_DAX).
        flags: u32,
    }

    /// `struct fuse_entry_out`: a name was found or made. Costs the kernel one later forget.
    EntryOut [128] {
        /// Node id that the daemon chose; 0 says that the name does not exist and that this may be
        /// cached.
        nodeid: u64,
        /// Makes a node id that is used again distinct.
        generation: u64,
        /// How long the name may be cached.
        entry_valid: u64,
        /// How long the attributes may be cached.
        attr_valid: u64,
        /// Nanoseconds of `entry_valid`.
        entry_valid_nsec: u32,
        /// Nanoseconds of `attr_valid`.
        attr_valid_nsec: u32,
        /// Attributes.
        attr: Attr,
    }

    /// `struct fuse_attr_out`: reply to GETATTR and SETATTR.
    AttrOut [104] {
        /// How long the attributes may be cached.
        attr_valid: u64,
        /// Nanoseconds of `attr_valid`.
        attr_valid_nsec: u32,
        /// Zero.
        dummy: u32,
        /// Attributes.
        attr: Attr,
    }

    /// `struct fuse_getattr_in`.
    GetattrIn [16] {
        /// [`GETATTR_FH`](super::GETATTR_FH).
        getattr_flags: u32,
        /// Zero.
        dummy: u32,
        /// Open handle, where the flag says so.
        fh: u64,
    }

    /// `struct fuse_setattr_in`.
    SetattrIn [88] {
        /// Which fields count.
        valid: SetattrValid,
        /// Zero.
        padding: u32,
        /// Open handle.
        fh: u64,
        /// New size.
        size: u64,
        /// Owner of locks to be checked.
        lock_owner: u64,
        /// New access time.
        atime: u64,
        /// New modification time.
        mtime: u64,
        /// New change time.
        ctime: u64,
        /// Nanoseconds of `atime`.
        atimensec: u32,
        /// Nanoseconds of `mtime`.
        mtimensec: u32,
        /// Nanoseconds of `ctime`.
        ctimensec: u32,
        /// New permissions.
        mode: u32,
        /// Zero.
        unused4: u32,
        /// New owner.
        uid: u32,
        /// New group.
        gid: u32,
        /// Zero.
        unused5: u32,
    }

    /// `struct fuse_sx_time`: a time in statx form.
    SxTime [16] {
        /// Seconds.
        tv_sec: i64,
        /// Nanoseconds.
        tv_nsec: u32,
        /// Zero.
        reserved: i32,
    }

    /// `struct fuse_statx`: attributes in statx form.
    Statx [256] {
        /// Which fields are filled in, `STATX_*`.
        mask: u32,
        /// Preferred I/O size.
        blksize: u32,
        /// `STATX_ATTR_*` bits that are set.
        attributes: u64,
        /// Number of hard links.
        nlink: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Type and permissions.
        mode: u16,
        /// Zero.
        spare0: u16,
        /// Inode number as applications see it.
        ino: u64,
        /// Size.
        size: u64,
        /// Space taken, in units of 512 bytes.
        blocks: u64,
        /// `STATX_ATTR_*` bits that are meaningful.
        attributes_mask: u64,
        /// Access time.
        atime: SxTime,
        /// Birth time.
        btime: SxTime,
        /// Change time.
        ctime: SxTime,
        /// Modification time.
        mtime: SxTime,
        /// Major number of a device node.
        rdev_major: u32,
        /// Minor number of a device node.
        rdev_minor: u32,
        /// Major number of the containing device.
        dev_major: u32,
        /// Minor number of the containing device.
        dev_minor: u32,
        /// Zero.
        spare2: [u64; 14],
    }

    /// `struct fuse_statx_in`. Since 7.39.
    StatxIn [24] {
        /// [`GETATTR_FH`](super::GETATTR_FH).
        getattr_flags: u32,
        /// Zero.
        reserved: u32,
        /// Open handle, where the flag says so.
        fh: u64,
        /// `AT_STATX_*` flags of the caller.
        sx_flags: u32,
        /// Which fields are wanted, `STATX_*`.
        sx_mask: u32,
    }

    /// `struct fuse_statx_out`. Since 7.39.
    StatxOut [288] {
        /// How long the attributes may be cached.
        attr_valid: u64,
        /// Nanoseconds of `attr_valid`.
        attr_valid_nsec: u32,
        /// Zero.
        flags: u32,
        /// Zero.
        spare: [u64; 2],
        /// Attributes.
        stat: Statx,
    }

    /// `struct fuse_kstatfs`, which is also the whole of `struct fuse_statfs_out`: file system
    /// totals.
    Kstatfs [80] {
        /// Size, in units of `frsize`.
        blocks: u64,
        /// Free, in units of `frsize`.
        bfree: u64,
        /// Free for ordinary users, in units of `frsize`.
        bavail: u64,
        /// Number of inodes.
        files: u64,
        /// Free inodes.
        ffree: u64,
        /// Preferred I/O size.
        bsize: u32,
        /// Longest name.
        namelen: u32,
        /// Unit of the block counts.
        frsize: u32,
        /// Zero.
        padding: u32,
        /// Zero.
        spare: [u32; 6],
    }

    /// `struct fuse_access_in`.
    AccessIn [8] {
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
        /// Zero.
        padding: u32,
    }
}

/// `struct fuse_statfs_out` has only this member.
pub type StatfsOut = Kstatfs;
