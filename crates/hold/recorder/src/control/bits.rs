//! Sets of bits that shim and supervisor tell each other.

use bitflags::bitflags;

bitflags! {
    /// Things that happened, set by the shim and never taken back within a mount.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u64 {
        /// mount(2) was done, or the device came from fusermount.
        const MOUNTED = 1 << 0;
        /// The recorder is full or was found damaged: a further crash cannot be held exactly.
        const DEGRADED = 1 << 2;
        /// A successor negotiated other options than generation 0.
        const INIT_MISMATCH = 1 << 3;
        /// The device gave ENODEV: the mount is gone.
        const DISCONNECTED = 1 << 4;
        /// The daemon gives each hard link of a file a node of its own.
        const LINKS_APART = 1 << 5;
        /// The daemon gave an inode number that is not its node id, so its numbers are the files'
        /// own.
        const OWN_INODES = 1 << 6;
        /// The daemon has answered a WRITE, or a change of names, of which nothing was seen to
        /// leave it.
        const KEEPS_WRITES = 1 << 7;
        /// The daemon has changed something in a way that is not seen to be part of a request (by a
        /// thread without one, by a shared mapping of a file): what is not seen of a request may
        /// have happened all the same.
        const UNSEEN = 1 << 8;
        /// The daemon opens what a CREATE with O_APPEND makes without that flag: what it writes
        /// there goes where the kernel says.
        const CREATES_PLAIN = 1 << 9;
        /// The daemon was seen to count the links of a file wrongly after a rename over one of
        /// them.
        const MISCOUNTS = 1 << 10;
        /// The daemon has made other mounts besides the held one.
        const SEVERAL = 1 << 11;
    }
}

bitflags! {
    /// Choices of the user that the shim must know. They are not in the recorder, where a daemon
    /// could change them: a shim is given them by the supervisor when it is started.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Options: u64 {
        /// Do not use RESEND: keep copies of requests and serve them again.
        const NO_RESEND = 1 << 0;
        /// Reissue everything blindly, for comparison studies only.
        const BLIND_REPLAY = 1 << 1;
        /// The daemon's inode numbers change between its lives.
        const VOLATILE_INODES = 1 << 2;
        /// Log the effectful calls of requests, and take them up again after a crash.
        const JOURNAL = 1 << 3;
        /// Collect a request's writes to the image, and carry them out when its reply is decided.
        const TRANSACTION = 1 << 4;
        /// Collect all writes to the image until a checkpoint.
        const EPOCH = 1 << 5;
        /// What was done since the last checkpoint cannot be done again: show what that holds, and
        /// change nothing.
        const READ_ONLY = 1 << 6;
        /// Nobody has said that all of the daemon's calls are seen: where none is on record there
        /// may have been some.
        const UNPROVEN = 1 << 7;
        /// With [`Options::EPOCH`]: there is no image. What was acknowledged is done again until
        /// the daemon has stored it, which it does at its end.
        const BUFFER = 1 << 8;
        /// With [`Options::BUFFER`]: it stores the content of a file when that is flushed, and all
        /// else at once.
        const BUFFER_FILES = 1 << 9;
        /// With [`Options::BUFFER_FILES`]: when its last handle is released, and not by a flush.
        const BUFFER_CLOSE = 1 << 10;
        /// The daemon ends with its connection, and answers EIO before: what it says then is no
        /// answer.
        const ENDS_UNCONNECTED = 1 << 11;
        /// Not with [`Options::EPOCH`]: what the daemon answers and keeps to itself is looked for.
        const WATCHED = 1 << 12;
        /// What the daemon answers to a write may be lost with its connection, until it has carried
        /// out a flush or an fsync.
        const LOSES_UNCONNECTED = 1 << 13;
        /// With [`Options::BUFFER_CLOSE`]: it stores nothing when a file is synced, nor when its
        /// length is changed by no handle.
        const BUFFER_RELEASE = 1 << 14;
        /// The daemon keeps records of what it has done, and tells what it has answered. Its ids
        /// mean the same in all of its lives.
        const RECORDS = 1 << 15;
    }
}
