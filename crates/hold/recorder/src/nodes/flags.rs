//! What a node's record says of it by single bits.

bitflags::bitflags! {
    /// Flags of a node. The four bits from `KIND_SHIFT` on hold the file type (`mode >> 12`), which
    /// is no flag.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NodeFlags: u32 {
        /// The slot is in use.
        const LIVE = 1 << 0;
        /// Bound to the id of the generation in its record.
        const BOUND = 1 << 1;
        /// In the id index.
        const BY_ID = 1 << 2;
        /// In the inode-number index: it has several links, its number is pinned, or numbers of one
        /// life mean nothing in the next.
        const BY_INO = 1 << 3;
        /// The daemon numbers inodes by node id: applications see the key instead.
        const INO_IS_ID = 1 << 4;
        /// Applications go on seeing the recorded number, whatever a successor says.
        const INO_PINNED = 1 << 5;
        /// Unlinked by applications, kept open under a hidden name.
        const HIDDEN = 1 << 6;
        /// Removed by applications; nothing leads to it any more.
        const UNLINKED = 1 << 7;
        /// The daemon has answered a WRITE of it, and nothing of that was seen to leave the daemon.
        const KEPT = 1 << 12;
        /// The daemon has answered a WRITE of it, and has not been heard to have it from its server
        /// that it arrived.
        const SENT = 1 << 13;
        /// With [`KEPT`]: something of it was seen to leave the daemon by a later WRITE.
        const LEFT = 1 << 14;
        /// Its hidden name is its only one, and another file was renamed over the one that it had:
        /// the daemon is to count one link.
        const LONE = 1 << 15;
    }
}
