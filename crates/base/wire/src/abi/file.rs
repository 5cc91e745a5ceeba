//! Bodies of requests and replies about open files.

use super::FopenFlags;

wire! {
    /// `struct fuse_open_in`, OPEN and OPENDIR.
    OpenIn [8] {
        /// `O_*` flags, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
        flags: u32,
        /// [`OPEN_KILL_SUIDGID`](super::OPEN_KILL_SUIDGID).
        open_flags: u32,
    }

    /// `struct fuse_create_in`, CREATE and TMPFILE; the name follows.
    CreateIn [16] {
        /// `O_*` flags.
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// The caller's umask.
        umask: u32,
        /// [`OPEN_KILL_SUIDGID`](super::OPEN_KILL_SUIDGID).
        open_flags: u32,
    }

    /// `struct fuse_open_out`: reply to OPEN and OPENDIR, second part of the reply to CREATE and
    /// TMPFILE.
    OpenOut [16] {
        /// Handle that the daemon chose.
        fh: u64,
        /// How the file is to be used.
        open_flags: FopenFlags,
        /// Backing file, with `FopenFlags::PASSTHROUGH`.
        backing_id: i32,
    }

    /// `struct fuse_release_in`, RELEASE and RELEASEDIR.
    ReleaseIn [24] {
        /// Open handle.
        fh: u64,
        /// `O_*` flags of the open.
        flags: u32,
        /// [`RELEASE_FLUSH`](super::RELEASE_FLUSH),
        /// [`RELEASE_FLOCK_UNLOCK`](super::RELEASE_FLOCK_UNLOCK).
        release_flags: u32,
        /// Owner of BSD locks.
        lock_owner: u64,
    }

    /// `struct fuse_flush_in`.
    FlushIn [24] {
        /// Open handle.
        fh: u64,
        /// Zero.
        unused: u32,
        /// Zero.
        padding: u32,
        /// Owner whose POSIX locks are dropped.
        lock_owner: u64,
    }

    /// `struct fuse_read_in`, READ, READDIR and READDIRPLUS.
    ReadIn [40] {
        /// Open handle.
        fh: u64,
        /// File position, or a directory's cookie.
        offset: u64,
        /// Room for the data.
        size: u32,
        /// [`READ_LOCKOWNER`](super::READ_LOCKOWNER).
        read_flags: u32,
        /// Owner of locks to be checked.
        lock_owner: u64,
        /// `O_*` flags of the open file.
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_write_in`; the data follows.
    WriteIn [40] {
        /// Open handle.
        fh: u64,
        /// File position.
        offset: u64,
        /// Length of the data.
        size: u32,
        /// [`WRITE_CACHE`](super::WRITE_CACHE) and its neighbours.
        write_flags: u32,
        /// Owner of locks to be checked.
        lock_owner: u64,
        /// `O_*` flags of the open file.
        flags: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_write_out`: reply to WRITE and COPY_FILE_RANGE.
    WriteOut [8] {
        /// Bytes written.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_fsync_in`, FSYNC and FSYNCDIR.
    FsyncIn [16] {
        /// Open handle.
        fh: u64,
        /// [`FSYNC_FDATASYNC`](super::FSYNC_FDATASYNC).
        fsync_flags: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_fallocate_in`.
    FallocateIn [32] {
        /// Open handle.
        fh: u64,
        /// Start.
        offset: u64,
        /// Length.
        length: u64,
        /// `FALLOC_FL_*` flags.
        mode: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_lseek_in`.
    LseekIn [24] {
        /// Open handle.
        fh: u64,
        /// Where to start looking.
        offset: u64,
        /// `SEEK_DATA`, `SEEK_HOLE`.
        whence: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_lseek_out`.
    LseekOut [8] {
        /// Position found.
        offset: u64,
    }

    /// `struct fuse_copy_file_range_in`, COPY_FILE_RANGE and COPY_FILE_RANGE_64. The header names
    /// the source.
    CopyFileRangeIn [56] {
        /// Open handle of the source.
        fh_in: u64,
        /// Position in the source.
        off_in: u64,
        /// Node of the target.
        nodeid_out: u64,
        /// Open handle of the target.
        fh_out: u64,
        /// Position in the target.
        off_out: u64,
        /// Length.
        len: u64,
        /// Zero.
        flags: u64,
    }

    /// `struct fuse_copy_file_range_out`: reply to COPY_FILE_RANGE_64. Since 7.45.
    CopyFileRangeOut [8] {
        /// Bytes copied.
        bytes_copied: u64,
    }

    /// `struct fuse_bmap_in`.
    BmapIn [16] {
        /// Block of the file.
        block: u64,
        /// Size of a block.
        blocksize: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_bmap_out`.
    BmapOut [8] {
        /// Block of the device.
        block: u64,
    }

    /// `struct fuse_ioctl_in`; `in_size` bytes of input follow.
    IoctlIn [32] {
        /// Open handle.
        fh: u64,
        /// [`IOCTL_COMPAT`](super::IOCTL_COMPAT) and its neighbours.
        flags: u32,
        /// Command.
        cmd: u32,
        /// The caller's argument, an address in the caller.
        arg: u64,
        /// Length of the input.
        in_size: u32,
        /// Room for the output.
        out_size: u32,
    }

    /// `struct fuse_ioctl_iovec`: a range of the caller's memory, asked for by a retry.
    IoctlIovec [16] {
        /// Address.
        base: u64,
        /// Length.
        len: u64,
    }

    /// `struct fuse_ioctl_out`; output or io vectors follow.
    IoctlOut [16] {
        /// What the caller gets.
        result: i32,
        /// [`IOCTL_RETRY`](super::IOCTL_RETRY).
        flags: u32,
        /// Number of input ranges.
        in_iovs: u32,
        /// Number of output ranges.
        out_iovs: u32,
    }

    /// `struct fuse_poll_in`.
    PollIn [24] {
        /// Open handle.
        fh: u64,
        /// The kernel's own name of the poll, for
        /// [`NotifyPollWakeupOut`](super::NotifyPollWakeupOut).
        kh: u64,
        /// [`POLL_SCHEDULE_NOTIFY`](super::POLL_SCHEDULE_NOTIFY).
        flags: u32,
        /// `POLL*` events of interest.
        events: u32,
    }

    /// `struct fuse_poll_out`.
    PollOut [8] {
        /// `POLL*` events that are ready.
        revents: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_setupmapping_in`.
    SetupmappingIn [40] {
        /// Open handle; the kernel sends all ones.
        fh: u64,
        /// Position in the file.
        foffset: u64,
        /// Length.
        len: u64,
        /// 1 to write, 2 to read.
        flags: u64,
        /// Position in the window.
        moffset: u64,
    }

    /// `struct fuse_removemapping_in`; `count` times [`RemovemappingOne`] follow.
    RemovemappingIn [4] {
        /// Number of items.
        count: u32,
    }

    /// `struct fuse_removemapping_one`.
    RemovemappingOne [16] {
        /// Position in the window.
        moffset: u64,
        /// Length.
        len: u64,
    }

    /// `struct fuse_syncfs_in`.
    SyncfsIn [8] {
        /// Zero.
        padding: u64,
    }
}
