//! Bodies of lock and interrupt requests.

wire! {
    /// `struct fuse_file_lock`.
    FileLock [24] {
        /// First byte.
        start: u64,
        /// Last byte, inclusive; `i64::MAX` for the end of the file.
        end: u64,
        /// `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
        type_: u32,
        /// Process that holds it.
        pid: u32,
    }

    /// `struct fuse_lk_in`, GETLK, SETLK and SETLKW.
    LkIn [48] {
        /// Open handle.
        fh: u64,
        /// Owner; an opaque number, the same for all locks of one owner.
        owner: u64,
        /// The lock.
        lk: FileLock,
        /// [`LK_FLOCK`](super::LK_FLOCK).
        lk_flags: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_lk_out`: reply to GETLK.
    LkOut [24] {
        /// A conflicting lock, or `F_UNLCK`.
        lk: FileLock,
    }

    /// `struct fuse_interrupt_in`.
    InterruptIn [8] {
        /// Request whose caller was signalled.
        unique: u64,
    }
}
