//! Bodies of the notifications that a daemon sends unasked.

wire! {
    /// `struct fuse_notify_poll_wakeup_out`.
    NotifyPollWakeupOut [8] {
        /// `PollIn::kh` of the poll.
        kh: u64,
    }

    /// `struct fuse_notify_inval_inode_out`.
    NotifyInvalInodeOut [24] {
        /// Node, despite its name.
        ino: u64,
        /// First byte of cached data; negative for attributes only.
        off: i64,
        /// Length; 0 or less for all that follows.
        len: i64,
    }

    /// `struct fuse_notify_inval_entry_out`; the name and a NUL follow.
    NotifyInvalEntryOut [16] {
        /// Node of the directory.
        parent: u64,
        /// Length of the name without its NUL.
        namelen: u32,
        /// [`EXPIRE_ONLY`](super::EXPIRE_ONLY).
        flags: u32,
    }

    /// `struct fuse_notify_delete_out`; the name and a NUL follow.
    NotifyDeleteOut [24] {
        /// Node of the directory.
        parent: u64,
        /// Node that lost the name.
        child: u64,
        /// Length of the name without its NUL.
        namelen: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_notify_store_out`; the data follows.
    NotifyStoreOut [24] {
        /// Node.
        nodeid: u64,
        /// Position.
        offset: u64,
        /// Length of the data.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_notify_retrieve_out`.
    NotifyRetrieveOut [32] {
        /// `unique` of the NOTIFY_REPLY to come.
        notify_unique: u64,
        /// Node.
        nodeid: u64,
        /// Position.
        offset: u64,
        /// Length.
        size: u32,
        /// Zero.
        padding: u32,
    }

    /// `struct fuse_notify_retrieve_in`: body of NOTIFY_REPLY; the data follows. As long as
    /// `WriteIn`.
    NotifyRetrieveIn [40] {
        /// Zero.
        dummy1: u64,
        /// Position.
        offset: u64,
        /// Length of the data.
        size: u32,
        /// Zero.
        dummy2: u32,
        /// Zero.
        dummy3: u64,
        /// Zero.
        dummy4: u64,
    }

    /// `struct fuse_notify_prune_out`; `count` node ids of 8 bytes follow. Since 7.45.
    NotifyPruneOut [16] {
        /// Number of node ids.
        count: u32,
        /// Zero.
        padding: u32,
        /// Zero.
        spare: u64,
    }
}
